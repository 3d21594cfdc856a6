//! Contexts of ranks that are threads.

use std::collections::BTreeMap;
use std::time::Duration;

use warpway::{Config, Context, Timeout};

/// Set-up and every wait may take so long.
pub fn limited(limit: Duration) -> Context {
    let mut config = Config::default();
    config.setup_timeout = Timeout::after(limit);
    config.device_timeout = Timeout::after(limit);
    Context::new(config)
}

/// A context per rank; ranks of different numbers are on different hosts, as far as they can tell.
pub fn on_hosts(hosts: &[u32], limit: Duration) -> Vec<Context> {
    let mut contexts: BTreeMap<u32, Context> = BTreeMap::new();
    let context = |host: &u32| {
        let made = contexts.entry(*host).or_insert_with(|| {
            let mut config = limited(limit).config().clone();
            config.host_id = format!("host {host}");
            Context::new(config)
        });
        made.clone()
    };
    hosts.iter().map(context).collect()
}
