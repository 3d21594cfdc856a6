//! Two network namespaces joined by a veth pair: two hosts as far as the network is concerned.

use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, bail, ensure};

/// The interface's name in both namespaces.
const CABLE: &str = "cable";

const CONGESTION: &str = "net.ipv4.tcp_congestion_control";

/// What a wire of limited rate holds back at once, and how long it keeps a packet at most.
const BURST: &str = "1mb";
const LATENCY: &str = "50ms";

/// The pair. Dropping it removes the namespaces, and with them the wire.
pub(super) struct Hosts {
    names: [String; 2],
}

impl Hosts {
    /// Needs root and iproute2. `rate`: of each direction, in the words of tc(8). `congestion`: the congestion control of both
    /// hosts instead of the machine's.
    pub(super) fn new(rate: Option<&str>, congestion: Option<&str>) -> anyhow::Result<Self> {
        let own = std::process::id();
        let hosts = Self { names: [0, 1].map(|host| format!("warpway-{own}-{host}")) };
        for name in &hosts.names {
            ip(&format!("netns add {name}")).context("network namespaces need root and iproute2")?;
        }
        let [first, second] = &hosts.names;
        ip(&format!("-n {first} link add {CABLE} type veth peer name {CABLE} netns {second}"))?;
        for (host, name) in hosts.names.iter().enumerate() {
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} addr add {}/24 dev {CABLE}", hosts.address(host)))?;
            ip(&format!("-n {name} link set {CABLE} up"))?;
            if let Some(name) = congestion {
                let mut command = hosts.command(host, "sysctl");
                // It says nothing else where that is not permitted, and ends with 0.
                let said = run(command.args(["-w", &format!("{CONGESTION}={name}")]))?;
                let why = String::from_utf8_lossy(&said.stderr).into_owned();
                ensure!(
                    host == 1 || hosts.congestion()? == name,
                    "congestion control {name}: {}",
                    why.trim()
                );
            }
            if let Some(rate) = rate {
                let mut command = hosts.command(host, "tc");
                command.args(["qdisc", "add", "dev", CABLE, "root", "tbf", "rate", rate]);
                run(command.args(["burst", BURST, "latency", LATENCY])).context("limiting the rate")?;
            }
        }
        Ok(hosts)
    }

    /// The address of a host on the wire; within the namespaces there are no others.
    pub(super) fn address(&self, host: usize) -> String {
        format!("10.78.0.{}", host + 1)
    }

    /// A program that is to run on a host.
    pub(super) fn command(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host], program]).stdin(Stdio::null());
        command
    }

    /// The congestion control of the hosts.
    pub(super) fn congestion(&self) -> anyhow::Result<String> {
        let output = run(self.command(0, "sysctl").args(["-n", CONGESTION]))?;
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// Bytes that a host has sent over the wire, with all headers and whatever was sent twice.
    pub(super) fn sent(&self, host: usize) -> anyhow::Result<u64> {
        let mut command = self.command(host, "cat");
        let output = run(command.arg(format!("/sys/class/net/{CABLE}/statistics/tx_bytes")))?;
        String::from_utf8(output.stdout)?.trim().parse().context("tx_bytes is no number")
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            // The one that could not be made is not there either.
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip(arguments: &str) -> anyhow::Result<Output> {
    run(Command::new("ip").args(arguments.split(' ')))
}

fn run(command: &mut Command) -> anyhow::Result<Output> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output)
}
