//! Every launcher, on a host that exists only here.

use std::collections::HashSet;

use super::*;
use crate::bootstrap::{InterfaceAddress, NameFilter};
use crate::error::Error;

struct FakeHost {
    user: u32,
    proxy: Option<(u32, u64)>,
    addresses: &'static [&'static str],
}

const HOST: FakeHost = FakeHost { user: 1000, proxy: Some((71, 5)), addresses: &["10.0.0.1", "fe80::1"] };
const OTHER_HOST: FakeHost =
    FakeHost { user: 1000, proxy: Some((71, 9)), addresses: &["10.0.0.2", "fe80::2"] };

impl Host for FakeHost {
    fn user_id(&self) -> u32 {
        self.user
    }

    fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let ips: &[&str] = match name {
            // As /etc/hosts of many distributions has it.
            "node1" if self.addresses[0] == "10.0.0.1" => &["127.0.1.1"],
            "node1" => &["10.0.0.1", "fd00::1"],
            "localhost" => &["::1", "127.0.0.1"],
            "nowhere" => &[],
            _ => return Err(io::Error::other("no such name")),
        };
        Ok(ips.iter().map(|ip| ip.parse().unwrap()).collect())
    }

    fn interfaces(&self) -> Result<Vec<Interface>> {
        let addresses = self.addresses.iter();
        let addresses = addresses.map(|ip| InterfaceAddress { ip: ip.parse().unwrap(), prefix_length: 24 });
        let (index, name) = (3, "eth0".into());
        Ok(vec![Interface { index, name, up: true, loopback: false, addresses: addresses.collect() }])
    }

    fn launcher_process(&self, command: &str) -> Option<(u32, u64)> {
        assert_eq!(command, "hydra_pmi_proxy");
        self.proxy
    }
}

fn find_on(host: &FakeHost, text: &str) -> Result<Rendezvous> {
    let environment: Environment =
        text.split_whitespace().map(|pair| pair.split_once('=').unwrap()).collect();
    let config = Config::read(&environment)?.config;
    Rendezvous::find(&environment, &config, host)
}

fn find(text: &str) -> Rendezvous {
    find_on(&HOST, text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The error, which must name each of `names`.
fn refused(text: &str, id: &str, names: &[&str]) -> Error {
    let error = find_on(&HOST, text).expect_err(text);
    assert_eq!(error.id(), id, "{text}: {error}");
    for name in names {
        assert!(error.to_string().contains(name), "{text}: {error}");
    }
    error
}

fn unix(rendezvous: &Rendezvous) -> String {
    match &rendezvous.plan.root {
        RootLocation::Unix { name } => String::from_utf8(name.clone()).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn tcp(rendezvous: &Rendezvous) -> Vec<String> {
    match &rendezvous.plan.root {
        RootLocation::Tcp { addresses } => addresses.iter().map(SocketAddr::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

fn key(rendezvous: &Rendezvous) -> [u8; 32] {
    rendezvous.plan.secret.handshake_key()
}

fn same_job(a: &Rendezvous, b: &Rendezvous) -> bool {
    a.plan.root == b.plan.root && key(a) == key(b)
}

#[test]
fn without_a_launcher_no_rank_is_assumed() {
    refused(
        "PATH=/bin",
        "config.launcher",
        &["warpway launch", "mpirun", "WARPWAY_RANK=0 WARPWAY_WORLD_SIZE=1"],
    );
    refused("SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=4", "config.launcher", &["use srun"]);
    refused("WARPWAY_COMM_ID=10.0.0.1:5", "config.missing", &["WARPWAY_RANK", "WARPWAY_WORLD_SIZE"]);
}

#[test]
fn a_single_rank_needs_nothing_else_and_meets_nobody() {
    let (a, b) = (find("WARPWAY_RANK=0 WARPWAY_WORLD_SIZE=1"), find("WARPWAY_RANK=0 WARPWAY_WORLD_SIZE=1"));
    assert_eq!((a.rank, a.n_ranks, a.launcher, a.plan.hosts_root()), (0, 1, Launcher::Warpway, true));
    assert_ne!(unix(&a), unix(&b));
    assert_ne!(key(&a), key(&b));
    find("RANK=0 WORLD_SIZE=1");
    find("PMI_RANK=0 PMI_SIZE=1");
}

#[test]
fn warpway_launch() {
    let rank = |rank, rest: &str| {
        find(&format!(
            "WARPWAY_RANK={rank} WARPWAY_WORLD_SIZE=3 WARPWAY_LOCAL_RANK={rank} WARPWAY_LOCAL_WORLD_SIZE=3 {rest}"
        ))
    };
    let with = "WARPWAY_JOB_ID=a WARPWAY_BOOTSTRAP_TOKEN=t";
    let (zero, two) = (rank(0, with), rank(2, with));
    assert!(same_job(&zero, &two) && zero.plan.hosts_root() && !two.plan.hosts_root());
    assert_eq!((two.rank, two.n_ranks, two.local_rank, two.local_size), (2, 3, Some(2), Some(3)));
    assert_eq!(zero.plan.admission, Admission::Secret);
    assert!(unix(&zero).starts_with("warpway-1000-") && unix(&zero).len() < 100);

    let other_token = rank(0, "WARPWAY_JOB_ID=a WARPWAY_BOOTSTRAP_TOKEN=u");
    assert_eq!(unix(&other_token), unix(&zero), "they meet, and are told that the token differs");
    assert_ne!(key(&other_token), key(&zero));
    let none = rank(0, "WARPWAY_JOB_ID=a");
    assert_eq!(none.plan.admission, Admission::SameUser);
    let other_job = rank(0, "WARPWAY_JOB_ID=b");
    assert_ne!(unix(&other_job), unix(&none));
    assert_ne!(key(&other_job), key(&none));
    let text = "WARPWAY_RANK=0 WARPWAY_WORLD_SIZE=3 WARPWAY_LOCAL_WORLD_SIZE=3 WARPWAY_JOB_ID=a";
    let other_user = find_on(&FakeHost { user: 1001, ..HOST }, text).unwrap();
    assert_ne!(unix(&other_user), unix(&none));

    refused(
        "WARPWAY_RANK=0 WARPWAY_WORLD_SIZE=3 WARPWAY_LOCAL_WORLD_SIZE=3",
        "config.missing",
        &["WARPWAY_JOB_ID"],
    );
    refused("WARPWAY_RANK=0 WARPWAY_WORLD_SIZE=3 WARPWAY_JOB_ID=a", "config.missing", &["WARPWAY_COMM_ID"]);
}

const TORCH: &str = "WORLD_SIZE=4 MASTER_ADDR=node1 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none";

#[test]
fn torchrun_on_one_host() {
    let rank = |rest: &str| find(&format!("{TORCH} LOCAL_WORLD_SIZE=4 {rest}"));
    let zero = rank("RANK=0 LOCAL_RANK=0 TORCHELASTIC_RESTART_COUNT=0");
    let three = rank("RANK=3 LOCAL_RANK=3 TORCHELASTIC_RESTART_COUNT=0");
    assert!(same_job(&zero, &three));
    assert_eq!((three.launcher, three.rank, three.local_rank), (Launcher::Torchrun, 3, Some(3)));
    assert_eq!(three.plan.admission, Admission::SameUser);
    let restarted = rank("RANK=0 TORCHELASTIC_RESTART_COUNT=1");
    assert!(unix(&restarted) != unix(&zero) && key(&restarted) != key(&zero));
    let other = find(
        "RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=4 MASTER_ADDR=node1 MASTER_PORT=29501 TORCHELASTIC_RUN_ID=none \
         TORCHELASTIC_RESTART_COUNT=0",
    );
    assert_ne!(unix(&other), unix(&zero), "two jobs of one user with the default run id");
    refused("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2", "config.missing", &["WARPWAY_JOB_ID"]);
}

#[test]
fn torchrun_by_hand_at_a_loopback_address_is_one_host() {
    for master in ["localhost", "127.0.0.1", "::1"] {
        let rank = |r| find(&format!("RANK={r} WORLD_SIZE=2 MASTER_ADDR={master} MASTER_PORT=29500"));
        assert!(same_job(&rank(0), &rank(1)));
        assert!(unix(&rank(0)).starts_with("warpway-"));
    }
}

#[test]
fn torchrun_on_several_hosts() {
    let text = |rank, rest: &str| format!("{TORCH} LOCAL_WORLD_SIZE=2 RANK={rank} {rest}");
    refused(&text(0, ""), "config.missing", &["WARPWAY_BOOTSTRAP_TOKEN", "WARPWAY_BOOTSTRAP_INSECURE"]);
    let token = "WARPWAY_BOOTSTRAP_TOKEN=t";
    let zero = find(&text(0, token));
    let three = find_on(&OTHER_HOST, &text(3, token)).unwrap();
    assert_eq!(key(&zero), key(&three));
    assert_eq!(three.plan.admission, Admission::Secret);
    assert_eq!(three.plan.interfaces.toward, Some("10.0.0.1".parse().unwrap()));

    let dialled = tcp(&three);
    assert_eq!(dialled.len(), 32, "16 ports at two addresses");
    let port = |text: &String| text.rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
    let ports: Vec<u16> = dialled.iter().step_by(2).map(port).collect();
    assert_eq!(ports.iter().collect::<HashSet<_>>().len(), 16);
    assert!(ports.iter().all(|port| (20_000..32_000).contains(port)));
    let expected = ports.iter().flat_map(|port| [format!("10.0.0.1:{port}"), format!("[fd00::1]:{port}")]);
    assert_eq!(dialled, expected.collect::<Vec<_>>());
    // Rank 0 does not trust what its own name resolves to.
    let expected = ports.iter().flat_map(|port| [format!("[::]:{port}"), format!("0.0.0.0:{port}")]);
    assert_eq!(tcp(&zero), expected.collect::<Vec<_>>());

    let other = find(&text(0, "WARPWAY_BOOTSTRAP_TOKEN=t TORCHELASTIC_RESTART_COUNT=1"));
    assert_ne!(tcp(&other)[0], tcp(&zero)[0]);
    let waived = find_on(&OTHER_HOST, &text(3, "WARPWAY_BOOTSTRAP_INSECURE=1")).unwrap();
    assert_eq!(waived.plan.admission, Admission::Anyone);
    assert_eq!(tcp(&waived), dialled);

    let one_port = "WARPWAY_BOOTSTRAP_TOKEN=t WARPWAY_COMM_PORT=4444 WARPWAY_SOCKET_FAMILY=AF_INET";
    assert_eq!(tcp(&find_on(&OTHER_HOST, &text(3, one_port)).unwrap()), ["10.0.0.1:4444"]);
    assert_eq!(tcp(&find(&text(0, one_port))), ["0.0.0.0:4444"]);
    let unknown = text(3, token).replace("node1", "node9");
    let error = find_on(&HOST, &unknown).unwrap_err();
    assert!(error.id() == "config.meeting_place" && error.to_string().contains("node9"), "{error}");
    assert!(error.to_string().contains("MASTER_ADDR") && error.to_string().contains("rank 3"), "{error}");
}

/// What `mpirun -n 2` of Open MPI 4.1.4 sets, as far as it matters.
const MPIRUN: &str = "OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=745996289 \
    OMPI_MCA_orte_precondition_transports=2ba462338e5f258e-e11c28a8f0098372 \
    OMPI_MCA_orte_hnp_uri=745996288.0;tcp://10.0.0.1:40517;tcp6://[fd00::1]:51567";

#[test]
fn open_mpi() {
    let local = |r| {
        find(&format!(
            "{MPIRUN} OMPI_COMM_WORLD_RANK={r} OMPI_COMM_WORLD_LOCAL_RANK={r} OMPI_COMM_WORLD_LOCAL_SIZE=2"
        ))
    };
    assert!(same_job(&local(0), &local(1)));
    assert_eq!(
        (local(1).launcher, local(1).local_rank, local(1).local_size),
        (Launcher::OpenMpi, Some(1), Some(2))
    );
    assert_ne!(
        unix(&local(0)),
        unix(&find(
            "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=745996290"
        ))
    );

    let spread = |r| {
        format!(
            "{MPIRUN} OMPI_COMM_WORLD_RANK={r} OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 \
            WARPWAY_BOOTSTRAP_TOKEN=t"
        )
    };
    let (zero, one) = (find(&spread(0)), find_on(&OTHER_HOST, &spread(1)).unwrap());
    assert_eq!(key(&zero), key(&one));
    assert!(tcp(&zero)[0].starts_with("[::]:") && tcp(&one)[0].starts_with("10.0.0.1:"));
    assert!(tcp(&one)[1].starts_with("[fd00::1]:"));
    // mpirun on a login node: rank 0 says so instead of waiting where nobody comes.
    let error = find_on(&OTHER_HOST, &spread(0)).unwrap_err();
    assert_eq!(error.id(), "config.meeting_place");
    assert!(
        error.to_string().contains("OMPI_MCA_orte_hnp_uri") && error.to_string().contains("WARPWAY_COMM_ID")
    );
    let told = spread(1).replace("OMPI_MCA_orte_hnp_uri", "X") + " MASTER_ADDR=node1";
    assert!(tcp(&find_on(&OTHER_HOST, &told).unwrap())[0].starts_with("10.0.0.1:"));
    refused(
        &spread(1).replace("OMPI_MCA_orte_hnp_uri", "X"),
        "config.missing",
        &["WARPWAY_COMM_ID", "Open MPI"],
    );
}

#[test]
fn hydra() {
    let local = "PMI_SIZE=2 PMI_FD=6 MPI_LOCALNRANKS=2";
    let rank = |host, r| find_on(host, &format!("{local} PMI_RANK={r} MPI_LOCALRANKID={r}"));
    let (zero, one) = (rank(&HOST, 0).unwrap(), rank(&HOST, 1).unwrap());
    assert!(same_job(&zero, &one));
    assert_eq!((one.launcher, one.local_rank, one.local_size), (Launcher::Hydra, Some(1), Some(2)));
    let later = rank(&FakeHost { proxy: Some((71, 6)), ..HOST }, 0).unwrap();
    assert_ne!(unix(&later), unix(&zero), "another mpiexec");
    let error = rank(&FakeHost { proxy: None, ..HOST }, 0).unwrap_err();
    assert!(error.id() == "config.missing" && error.to_string().contains("WARPWAY_JOB_ID"), "{error}");

    // The proxies of several hosts have different parents; Slurm's step names the job.
    let spread = "PMI_SIZE=2 MPI_LOCALNRANKS=1 SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node[1-2] \
        WARPWAY_BOOTSTRAP_TOKEN=t";
    let zero = find(&format!("{spread} PMI_RANK=0"));
    let one = find_on(&OTHER_HOST, &format!("{spread} PMI_RANK=1")).unwrap();
    assert_eq!(key(&zero), key(&one));
    assert!(tcp(&one)[0].starts_with("10.0.0.1:"));
}

#[test]
fn slurm() {
    let step = "SLURM_JOB_ID=7 SLURM_STEP_ID=2 SLURM_NTASKS=9 SLURM_STEP_NUM_TASKS=4";
    let one_node = |r| find(&format!("{step} SLURM_STEP_NUM_NODES=1 SLURM_PROCID={r} SLURM_LOCALID={r}"));
    assert!(same_job(&one_node(0), &one_node(3)));
    assert_eq!(
        (one_node(3).launcher, one_node(3).n_ranks, one_node(3).local_rank),
        (Launcher::Slurm, 4, Some(3))
    );
    let other_step =
        find(&format!("{step} SLURM_STEP_NUM_NODES=1 SLURM_PROCID=0").replace("STEP_ID=2", "STEP_ID=3"));
    assert_ne!(unix(&other_step), unix(&one_node(0)));

    let spread = |r, node| {
        format!(
            "{step} SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE=3,1 SLURM_NODEID={node} SLURM_PROCID={r} \
            SLURM_STEP_NODELIST=node[1-2] WARPWAY_BOOTSTRAP_TOKEN=t"
        )
    };
    let (zero, three) = (find(&spread(0, 0)), find_on(&OTHER_HOST, &spread(3, 1)).unwrap());
    assert_eq!(key(&zero), key(&three));
    assert_eq!((zero.local_size, three.local_size), (Some(3), Some(1)));
    assert!(tcp(&zero)[0].starts_with("[::]:") && tcp(&three)[0].starts_with("10.0.0.1:"));
    refused(&spread(0, 5), "config.value", &["SLURM_STEP_TASKS_PER_NODE"]);
}

#[test]
fn the_innermost_launcher_wins() {
    let outer = "SLURM_JOB_ID=7 SLURM_STEP_ID=2 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_NNODES=2";
    let mpi = format!("{outer} {MPIRUN} OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2");
    assert_eq!((find(&mpi).launcher, find(&mpi).rank), (Launcher::OpenMpi, 0));
    let torch = format!("{mpi} {TORCH} RANK=3 LOCAL_WORLD_SIZE=4");
    assert_eq!((find(&torch).launcher, find(&torch).rank), (Launcher::Torchrun, 3));
    let ours =
        format!("{torch} WARPWAY_RANK=1 WARPWAY_WORLD_SIZE=2 WARPWAY_LOCAL_WORLD_SIZE=2 WARPWAY_JOB_ID=x");
    assert_eq!((find(&ours).launcher, find(&ours).rank, find(&ours).n_ranks), (Launcher::Warpway, 1, 2));
    // WORLD_SIZE alone, as some clusters set it for other purposes, does not get in the way.
    let stray = format!("WORLD_SIZE=8 {MPIRUN} OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2");
    assert_eq!((find(&stray).launcher, find(&stray).n_ranks), (Launcher::OpenMpi, 2));
}

#[test]
fn half_set_garbage_and_conflicting_variables_are_named() {
    for (text, missing, set) in [
        ("WARPWAY_RANK=0", "WARPWAY_WORLD_SIZE", "WARPWAY_RANK"),
        ("WARPWAY_WORLD_SIZE=2", "WARPWAY_RANK", "WARPWAY_WORLD_SIZE"),
        ("WARPWAY_RANK=0 RANK=0 WORLD_SIZE=2", "WARPWAY_WORLD_SIZE", "WARPWAY_RANK"),
        ("RANK=0", "WORLD_SIZE", "RANK"),
        ("WORLD_SIZE=2", "RANK", "WORLD_SIZE"),
        ("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
        ("PMI_SIZE=2", "PMI_RANK", "PMI_SIZE"),
        ("SLURM_STEP_ID=0 SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ] {
        let error = refused(text, "config.missing", &[set]);
        assert!(error.to_string().starts_with(&format!("{missing} is not set")), "{error}");
    }
    for (text, name) in [
        ("WARPWAY_RANK=x WARPWAY_WORLD_SIZE=2", "WARPWAY_RANK"),
        ("RANK=1.0 WORLD_SIZE=2", "RANK"),
        ("RANK=0 WORLD_SIZE=+2", "WORLD_SIZE"),
        ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=-1", "LOCAL_RANK"),
        ("OMPI_COMM_WORLD_RANK=4294967296 OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK"),
        ("PMI_RANK=0 PMI_SIZE=0x2", "PMI_SIZE"),
        ("WARPWAY_RANK=0 WARPWAY_WORLD_SIZE=1 WARPWAY_LOCAL_RANK=first", "WARPWAY_LOCAL_RANK"),
    ] {
        refused(text, "config.value", &[name]);
    }
    for (text, a, b) in [
        ("WARPWAY_RANK=2 WARPWAY_WORLD_SIZE=2", "WARPWAY_RANK=\"2\"", "WARPWAY_WORLD_SIZE=\"2\""),
        ("RANK=0 WORLD_SIZE=0", "RANK=\"0\"", "WORLD_SIZE=\"0\""),
        ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=1", "LOCAL_RANK=\"1\"", "LOCAL_WORLD_SIZE=\"1\""),
        ("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=3", "LOCAL_WORLD_SIZE=\"3\"", "WORLD_SIZE=\"2\""),
        (
            "RANK=0 WORLD_SIZE=2 WARPWAY_LOCAL_WORLD_SIZE=3",
            "WARPWAY_LOCAL_WORLD_SIZE=\"3\"",
            "WORLD_SIZE=\"2\"",
        ),
    ] {
        refused(text, "config.conflict", &[a, b]);
    }
}

#[test]
fn n5_an_address_alone_lets_nobody_in() {
    let at = |rank, rest: &str| format!("WARPWAY_RANK={rank} WARPWAY_WORLD_SIZE=2 {rest}");
    refused(&at(0, "WARPWAY_COMM_ID=10.0.0.1:5"), "config.missing", &["WARPWAY_BOOTSTRAP_TOKEN"]);
    let token = "WARPWAY_COMM_ID=10.0.0.1:5 WARPWAY_BOOTSTRAP_TOKEN=t";
    let (zero, one) = (find(&at(0, token)), find_on(&OTHER_HOST, &at(1, token)).unwrap());
    assert!(same_job(&zero, &one) && zero.plan.hosts_root() && !one.plan.hosts_root());
    assert_eq!((tcp(&one), one.plan.admission), (vec!["10.0.0.1:5".to_owned()], Admission::Secret));
    for other in [
        "WARPWAY_COMM_ID=10.0.0.1:6 WARPWAY_BOOTSTRAP_TOKEN=t",
        "WARPWAY_COMM_ID=10.0.0.1:5 WARPWAY_BOOTSTRAP_TOKEN=u",
        "WARPWAY_COMM_ID=10.0.0.1:5 WARPWAY_BOOTSTRAP_TOKEN=t WARPWAY_JOB_ID=j",
        "WARPWAY_COMM_ID=10.0.0.1:5 WARPWAY_BOOTSTRAP_INSECURE=1",
    ] {
        assert_ne!(key(&find(&at(1, other))), key(&one), "{other}");
    }
    let insecure = find(&at(1, "WARPWAY_COMM_ID=10.0.0.1:5 WARPWAY_BOOTSTRAP_INSECURE=yes"));
    assert_eq!(insecure.plan.admission, Admission::Anyone);
}

#[test]
fn without_a_token_a_loopback_address_is_a_name_for_a_unix_socket() {
    let at = |rank, rest: &str| find(&format!("WARPWAY_RANK={rank} WARPWAY_WORLD_SIZE=2 {rest}"));
    let (zero, one) = (at(0, "WARPWAY_COMM_ID=127.0.0.1:5"), at(1, "WARPWAY_COMM_ID=127.0.0.1:5"));
    assert!(same_job(&zero, &one));
    assert_eq!(one.plan.admission, Admission::SameUser);
    assert_ne!(unix(&one), unix(&at(1, "WARPWAY_COMM_ID=127.0.0.1:6")));
    unix(&at(1, "WARPWAY_COMM_ID=10.0.0.1:5 WARPWAY_LOCAL_WORLD_SIZE=2"));
    let token = "WARPWAY_COMM_ID=localhost:5 WARPWAY_BOOTSTRAP_TOKEN=t";
    assert_eq!(tcp(&at(0, token)), ["[::1]:5", "127.0.0.1:5"], "rank 0 does not bind more than asked for");
    assert_eq!(tcp(&at(1, token)), tcp(&at(0, token)));
}

#[test]
fn explicit_addresses_in_all_forms() {
    let at = |host, rank, address: &str| {
        let rest = "WARPWAY_WORLD_SIZE=2 WARPWAY_BOOTSTRAP_TOKEN=t";
        find_on(host, &format!("WARPWAY_RANK={rank} WARPWAY_COMM_ID={address} {rest}"))
    };
    let named = at(&HOST, 1, "eth0:10.0.0.1:5").unwrap();
    assert_eq!(named.plan.interfaces.names, NameFilter::Exact(vec!["eth0".into()]));
    assert_eq!(
        key(&named),
        key(&at(&HOST, 0, "ib7:10.0.0.1:5").unwrap()),
        "each rank names its own interface"
    );
    assert_eq!(tcp(&at(&HOST, 0, "[fd00:0::1]:5").unwrap()), ["[fd00::1]:5"]);
    assert_eq!(tcp(&at(&OTHER_HOST, 1, "node1:5").unwrap()), ["10.0.0.1:5", "[fd00::1]:5"]);
    assert_eq!(tcp(&at(&HOST, 0, "node1:5").unwrap()), ["[::]:5", "0.0.0.0:5"]);
    let RootLocation::Tcp { addresses } = at(&HOST, 1, "[fe80::7%eth0]:5").unwrap().plan.root else {
        panic!()
    };
    assert_eq!(addresses, [SocketAddrV6::new("fe80::7".parse().unwrap(), 5, 0, 3).into()]);
    for (bad, part) in [
        ("[fe80::7]:5", "interface"),
        ("[fe80::7%eth9]:5", "eth9"),
        ("node9:5", "node9"),
        ("nowhere:5", "nowhere"),
    ] {
        let error = at(&OTHER_HOST, 1, bad).unwrap_err();
        assert!(error.id() == "config.meeting_place" && error.to_string().contains(part), "{error}");
    }
    let seat = Seat { rank: 2, n_ranks: 2, one_host: true };
    let address = "10.0.0.1:5".parse().unwrap();
    let error = JoinPlan::at_address(&address, seat, &Config::default(), &HOST).unwrap_err();
    assert_eq!(error.id(), "bootstrap.rank");
}

#[test]
fn the_subnet_hint_of_mscclpp_is_only_a_hint() {
    let plan = find(
        "WARPWAY_RANK=1 WARPWAY_WORLD_SIZE=2 WARPWAY_COMM_ID=10.0.0.1:5 WARPWAY_BOOTSTRAP_TOKEN=t \
         MSCCLPP_COMM_ID=192.168.3.4:9",
    )
    .plan;
    assert_eq!(plan.interfaces.toward, Some("192.168.3.4".parse().unwrap()));
    refused(
        "WARPWAY_RANK=1 WARPWAY_WORLD_SIZE=2 WARPWAY_JOB_ID=j MSCCLPP_COMM_ID=10.0.0.1:5",
        "config.missing",
        &["WARPWAY_COMM_ID"],
    );
}
