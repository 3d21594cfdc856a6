//! One rank of a scenario; the tests start it. It says on its standard output how far it has come and how it
//! ended (`warpway_tests::Line`), and exits with 0 also after an error: a crash is something else.

mod scenario;

use clap::{Parser, ValueEnum};
use warpway::Transport;
use warpway_tests::{Fault, Line};

/// One rank of a scenario.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    scenario: scenario::Scenario,
}

/// What connects the ranks.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Way {
    /// Shared memory.
    Shared,
    /// TCP.
    Tcp,
}

impl Way {
    fn transport(self) -> Transport {
        match self {
            Self::Shared => Transport::SharedMemory,
            Self::Tcp => Transport::Ethernet,
        }
    }
}

fn main() {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let arguments = Arguments::parse();
    match arguments.scenario.play() {
        Ok(()) => Line::Done.say(),
        Err(error) => Line::Failed(Fault::of_scenario(&error)).say(),
    }
}
