//! Where a table was measured, and whether it still holds.

use serde::{Deserialize, Serialize};

use crate::task::Task;
use crate::world::World;
use crate::{Function, catalogue};

/// What measurements depend on besides the ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// The machine.
    pub machine: Machine,
    /// What was measured.
    pub library: Library,
    /// When, for people.
    pub date: String,
    /// By which command, for people.
    pub command: String,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Processors that a rank may use.
    pub cores: u64,
    /// Release of the kernel.
    pub kernel: String,
}

/// A version of this library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Library {
    /// Its version.
    pub version: String,
    /// Changes with the names and plans of the catalogue.
    pub catalogue: String,
}

impl Library {
    /// This one.
    pub fn this() -> Self {
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), catalogue: format!("{:016x}", digest()) }
    }
}

impl Origin {
    /// What is different now, a sentence each; none if the measurements still hold.
    pub fn staleness(&self, machine: &Machine, library: &Library) -> Vec<String> {
        let mut found = Vec::new();
        let mut compare = |what: &str, then: &str, now: &str| {
            if then != now {
                found.push(format!("{what} was {then:?} and is {now:?}"));
            }
        };
        compare("the processor", &self.machine.cpu, &machine.cpu);
        compare("the number of cores", &self.machine.cores.to_string(), &machine.cores.to_string());
        compare("the kernel", &self.machine.kernel, &machine.kernel);
        compare("the library", &self.library.version, &library.version);
        compare("the catalogue", &self.library.catalogue, &library.catalogue);
        found
    }
}

/// Of the algorithms' names and of their plans for a few small worlds.
fn digest() -> u64 {
    // FNV-1a.
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            digest = (digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    let worlds = [World::one_host(2), World::one_host(3), World::of_hosts(&[2, 2])];
    for algorithm in catalogue() {
        add(algorithm.function.name().as_bytes());
        add(algorithm.name.as_bytes());
        for world in &worlds {
            let task = Task::new(algorithm.function, world.clone());
            let tasks = if algorithm.function == Function::Barrier {
                vec![task]
            } else {
                vec![task.clone(), task.in_place()]
            };
            for task in tasks.iter().filter(|task| (algorithm.fits)(task).is_ok()) {
                if let Ok(plan) = (algorithm.build)(task) {
                    add(&plan.identity().0);
                }
            }
        }
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_said() {
        let machine = Machine { cpu: "A".into(), cores: 2, kernel: "6.1".into() };
        let library = Library { version: "1".into(), catalogue: "f00".into() };
        let (date, command) = (String::new(), String::new());
        let origin = Origin { machine: machine.clone(), library: library.clone(), date, command };
        assert_eq!(origin.staleness(&machine, &library), Vec::<String>::new());
        let other = Machine { cores: 4, ..machine };
        let newer = Library { catalogue: "f01".into(), ..library };
        let found = origin.staleness(&other, &newer);
        assert_eq!(
            found,
            ["the number of cores was \"2\" and is \"4\"", "the catalogue was \"f00\" and is \"f01\"",]
        );
        assert_eq!(Library::this(), Library::this());
    }
}
