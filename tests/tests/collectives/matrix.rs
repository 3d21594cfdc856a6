//! The matrix of collectives. Every run plays a sample in which each pair of values of any two dimensions occurs: setting
//! (ranks, hosts, threads or processes), algorithm, type, operator, size, place, memory, root, blocks, packets and places of
//! parts. The whole product is `full_product_of_collectives` in `full.rs`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use warpway::{Config, Context, Timeout, in_process_with};
use warpway_tests::matrix::{Case, Ranks, Setting, Verdict, play_all, sample};
use warpway_tests::{Job, Leftovers, Meeting, SEED, Settings};

/// A context per rank; ranks of different numbers are on different hosts, as far as they can tell.
pub(crate) fn on_hosts(hosts: &[u32]) -> Vec<Context> {
    on_hosts_within(hosts, Duration::from_secs(60))
}

/// The same with a limit for waits.
pub(crate) fn on_hosts_within(hosts: &[u32], limit: Duration) -> Vec<Context> {
    let mut contexts: BTreeMap<u32, Context> = BTreeMap::new();
    let context = |host: &u32| {
        let made = contexts.entry(*host).or_insert_with(|| {
            let mut config = Config::default();
            config.setup_timeout = Timeout::after(Duration::from_secs(60));
            config.device_timeout = Timeout::after(limit);
            config.host_id = format!("host {host}");
            Context::new(config)
        });
        made.clone()
    };
    hosts.iter().map(context).collect()
}

/// A job of processes on such hosts.
pub(crate) fn job(hosts: &[u32], scenario: &str, patience: Duration) -> Settings {
    let n = hosts.len() as u32;
    let one_host = hosts.iter().all(|host| *host == 0);
    let mut settings = Settings { patience, ..Settings::new(n, scenario) };
    if !one_host {
        settings.meeting = Meeting::Tcp;
        settings.overrides =
            (0..).zip(hosts).map(|(rank, host)| (rank, "WARPWAY_HOSTID", format!("host {host}"))).collect();
    }
    settings
}

fn in_threads(setting: &Setting, cases: &[Case]) -> Result<Verdict, String> {
    let played = in_process_with(&on_hosts(&setting.hosts), |comm| play_all(comm, cases.iter().copied()));
    let mut verdict = Verdict::default();
    played
        .map_err(|error| format!("{setting}: {error}"))?
        .into_iter()
        .for_each(|of_rank| verdict.add(of_rank));
    Ok(verdict)
}

pub(crate) fn in_processes(setting: &Setting, scenario: &str, patience: Duration) -> Result<Verdict, String> {
    let job = Job::start(env!("CARGO_BIN_EXE_rank"), &job(&setting.hosts, scenario, patience));
    let ends = job.finish(&[], &Leftovers::default());
    for end in &ends {
        if end.lines.last() != Some(&warpway_tests::Line::Done) {
            return Err(format!("{setting}: {:?}\n{}", end.lines.last(), end.log));
        }
    }
    Ok(Verdict::heard(ends.iter().flat_map(|end| &end.lines)))
}

/// Plays the sample of the settings that are meant.
fn play(meant: impl Fn(&Setting) -> bool) {
    let mut all = Verdict::default();
    for (number, (setting, cases)) in sample(SEED).into_iter().enumerate() {
        if !meant(&setting) {
            continue;
        }
        let started = Instant::now();
        let verdict = match setting.ranks {
            Ranks::Threads => in_threads(&setting, &cases),
            Ranks::Processes => in_processes(&setting, &format!("matrix {number}"), Duration::from_secs(60)),
        };
        let verdict = verdict.unwrap();
        assert_eq!(verdict.cases, cases.len() as u64 * setting.hosts.len() as u64, "{setting}");
        println!("{setting}: {} cases in {:?}", cases.len(), started.elapsed());
        all.add(verdict);
    }
    assert!(all.cases > 0);
    assert_eq!(all.failed, 0, "{:#?}", all.failures);
}

fn one_host(setting: &Setting) -> bool {
    setting.world().n_hosts() == 1
}

#[test]
fn sample_of_threads() {
    play(|setting| setting.ranks == Ranks::Threads && one_host(setting));
}

#[test]
fn sample_of_processes() {
    play(|setting| setting.ranks == Ranks::Processes && one_host(setting));
}

#[test]
fn sample_of_threads_on_several_hosts() {
    play(|setting| setting.ranks == Ranks::Threads && !one_host(setting));
}

#[test]
fn sample_of_processes_on_several_hosts() {
    play(|setting| setting.ranks == Ranks::Processes && !one_host(setting));
}
