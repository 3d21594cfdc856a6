//! The scenarios, one subcommand each.

mod collectives;
mod members;
mod misuse;
mod start;
mod traffic;

use clap::Subcommand;
use warpway::{Communicator, Transport};
use warpway_tests::suite;

use crate::Way;

/// What the ranks of the job do. Those without an end go on until something fails.
#[derive(Subcommand)]
pub(crate) enum Scenario {
    /// Joins, and waits at the bootstrap's barrier until something fails
    Barrier,
    /// Joins and leaves, and says how long joining took
    Join,
    /// Joins a job by a unique id, given as hexadecimal digits
    JoinId { id: String },
    /// Connects and exchanges memories, again and again
    Connect { way: Way },
    /// Puts through memory channels from blocks
    Put,
    /// Writes through connections
    Write { way: Way },
    /// Each rank waits for a signal of the next one
    Wait { way: Way },
    /// Puts through port channels
    Proxy { way: Way },
    /// Rank 0 does nothing that the others wait for
    Sleep { way: Way },
    /// The last rank aborts while the others wait for each other
    Abort { way: Way },
    /// The last rank leaves in good order while the others wait for it
    Leave { way: Way },
    /// A block of the last rank panics while the others wait for each other
    Panic { way: Way },
    /// A block of the last rank returns an error while the others wait for each other
    KernelError { way: Way },
    /// Four ranks in halves and in a second communicator; a half without the dead rank works on
    Halves { way: Way },
    /// Calls that must be refused, between calls that must work
    Misuse { way: Way },
    /// Exchanges that do not fit each other
    Mismatch { way: Way },
    /// Plans, checked; or launched until something fails
    Plans {
        #[arg(long)]
        endless: bool,
    },
    /// Plans on several hosts, checked; or launched, or set up, until something fails
    HostPlans {
        #[arg(long)]
        endless: bool,
        #[arg(long)]
        set_up: bool,
    },
    /// Different plans in random order, checked
    Sequence {
        #[arg(long)]
        turns: u64,
    },
    /// Sends and receives, checked; or groups until something fails
    Messages {
        #[arg(long)]
        endless: bool,
    },
    /// Cases of the matrix of collectives, by the number of the setting: those of the sample, or all
    Matrix {
        setting: usize,
        #[arg(long)]
        full: bool,
    },
    /// Random collectives, checked; says what the process held in the middle and at the end
    Collectives {
        #[arg(long)]
        turns: u64,
        #[arg(long)]
        seed: u64,
    },
    /// One collective again and again, by each algorithm in turn, until something fails
    Endless {
        function: String,
        /// The host of each rank
        #[arg(long, value_delimiter = ',')]
        hosts: Vec<u32>,
    },
    /// All that channels and collectives must do
    Suite { way: Way },
    /// All-gather, for about so many milliseconds
    Work { way: Way, milliseconds: u64 },
}

impl Scenario {
    pub(crate) fn play(self) -> anyhow::Result<()> {
        match self {
            Self::Barrier => start::barrier(),
            Self::Join => start::join(),
            Self::JoinId { id } => start::join_id(&id),
            Self::Connect { way } => traffic::connect(way.transport()),
            Self::Put => traffic::put(),
            Self::Write { way } => traffic::write(way.transport()),
            Self::Wait { way } => traffic::wait(way.transport()),
            Self::Proxy { way } => traffic::proxy(way.transport()),
            Self::Sleep { way } => members::sleep(way.transport()),
            Self::Abort { way } => members::abort(way.transport()),
            Self::Leave { way } => members::leave(way.transport()),
            Self::Panic { way } => members::panic(way.transport()),
            Self::KernelError { way } => members::kernel_error(way.transport()),
            Self::Halves { way } => members::halves(way.transport()),
            Self::Misuse { way } => misuse::calls(way.transport()),
            Self::Mismatch { way } => misuse::exchanges(way.transport()),
            Self::Plans { endless: false } => Ok(suite::plans::algorithms(&join()?)?),
            Self::Plans { endless: true } => traffic::plans(),
            Self::HostPlans { endless, set_up } => traffic::host_plans(endless, set_up),
            Self::Sequence { turns } => traffic::sequence(turns),
            Self::Messages { endless: false } => {
                let comm = join()?;
                suite::messages(&comm, &suite::MESSAGE_SIZES)?;
                Ok(suite::random_messages(&comm, 1500, 11)?)
            }
            Self::Messages { endless: true } => traffic::messages(),
            Self::Matrix { setting, full } => collectives::matrix(setting, full),
            Self::Endless { function, hosts } => collectives::endless(&function, &hosts),
            Self::Collectives { turns, seed } => collectives::sequence(turns, seed),
            Self::Suite { way } => Ok(suite::everything(&join()?, way.transport())?),
            Self::Work { way, milliseconds } => {
                let comm = join()?;
                warpway_tests::Line::mark("working");
                Ok(suite::work(&comm, way.transport(), std::time::Duration::from_millis(milliseconds))?)
            }
        }
    }
}

fn join() -> anyhow::Result<Communicator> {
    Ok(Communicator::from_env()?)
}

/// The ranks other than this one.
fn others(comm: &Communicator) -> impl Iterator<Item = u32> + use<> {
    let own = comm.rank();
    (0..comm.n_ranks()).filter(move |rank| *rank != own)
}

/// True if blocks reach the peers' memory.
fn is_mapped(transport: Transport) -> bool {
    transport == Transport::SharedMemory
}
