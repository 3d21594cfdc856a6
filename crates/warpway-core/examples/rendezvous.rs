//! Shows what the environment of this process says: try it under `mpirun -n 2`, `torchrun`, `srun`.

use warpway_core::bootstrap::{ProcessIdentity, Rendezvous, ThisHost};
use warpway_core::config::{Config, Environment};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let environment = Environment::of_process()?;
    let loaded = Config::read(&environment)?;
    for notice in &loaded.notices {
        eprintln!("{notice}");
    }
    let found = Rendezvous::find(&environment, &loaded.config, &ThisHost::new(&loaded.config))?;
    let process = ProcessIdentity::read(&loaded.config.host_id)?;
    println!(
        "rank {} of {} (local {:?} of {:?}) on {}, started by {}: root {}, admission {:?}",
        found.rank,
        found.n_ranks,
        found.local_rank,
        found.local_size,
        process.host.name,
        found.launcher,
        found.plan.root,
        found.plan.admission
    );
    Ok(())
}
