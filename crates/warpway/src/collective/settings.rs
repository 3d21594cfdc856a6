//! What the user has set about choices: read once per communicator, and compared with the other ranks.

use std::path::Path;

use warpway_collectives::{Library, Override, Selector, Table};
use warpway_core::Result;
use warpway_core::bootstrap::Bootstrap as _;
use warpway_core::collective::CollectiveError;
use warpway_core::config::{Config, ConfigError};

use super::machine::this_machine;
use crate::communicator::Communicator;

/// What ranks must have in common to choose alike.
#[derive(Debug)]
pub(super) struct Settings {
    algorithm: Setting,
    table: Setting,
}

#[derive(Debug)]
struct Setting {
    /// For people.
    text: String,
    digest: u64,
}

impl Setting {
    /// Bytes of the text that other ranks see.
    const SHOWN: usize = 88;
    const BYTES: usize = 8 + Self::SHOWN;

    fn new(text: String, content: &str) -> Self {
        // FNV-1a.
        let mix = |digest: u64, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self { text, digest: content.bytes().fold(0xcbf2_9ce4_8422_2325, mix) }
    }

    fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.digest.to_le_bytes());
        let end = self.text.floor_char_boundary(Self::SHOWN);
        bytes[8..8 + end].copy_from_slice(&self.text.as_bytes()[..end]);
        bytes
    }

    fn shown(bytes: &[u8]) -> String {
        let text = bytes[8..].split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
}

impl Settings {
    /// A selector that does what the user has set.
    ///
    /// # Errors
    /// `config.value` for overrides that cannot be read; `collective.table` for a table that cannot be.
    pub(super) fn read(config: &Config, cores: u64) -> Result<(Selector, Self)> {
        let mut selector = Selector::new();
        let algorithm = match &config.algorithm {
            None => Setting::new("nothing".into(), ""),
            Some(text) => {
                let overrides = Override::parse_list(text).map_err(|error| ConfigError::Value {
                    variable: "WARPWAY_ALGORITHM".into(),
                    value: text.clone(),
                    expected: error.to_string(),
                })?;
                selector = selector.with_overrides("WARPWAY_ALGORITHM", overrides);
                Setting::new(format!("{text:?}"), text)
            }
        };
        let mut table = Setting::new("none".into(), "");
        if let Some(path) = &config.tuning_file {
            let (found, text) = read_table(path)?;
            let stale = found.origin.staleness(&this_machine(cores), &Library::this());
            table = Setting::new(path.display().to_string(), &text);
            if stale.is_empty() || config.tuning_force {
                selector = selector.with_table(&path.display().to_string(), found);
            } else {
                tracing::warn!(
                    "{} is not used, since it was measured elsewhere: {}; run `warpway tune` again, or set \
                     WARPWAY_TUNING_FORCE=1",
                    path.display(),
                    stale.join(", ")
                );
                table = Setting::new(format!("{}, stale: {}", path.display(), stale.join(", ")), "");
            }
        }
        Ok((selector, Self { algorithm, table }))
    }

    /// Compares with the other ranks. Collective.
    ///
    /// # Errors
    /// `collective.settings` on all ranks, naming one that differs; those of the bootstrap.
    pub(super) fn compare(&self, comm: &Communicator) -> Result<()> {
        const BYTES: usize = 2 * Setting::BYTES;
        let (rank, n) = (comm.rank(), comm.n_ranks() as usize);
        let own = [("WARPWAY_ALGORITHM", &self.algorithm), ("WARPWAY_TUNING_FILE", &self.table)];
        let mut all = vec![0; n * BYTES];
        let slot = &mut all[rank as usize * BYTES..][..BYTES];
        for (bytes, (_, setting)) in slot.chunks_exact_mut(Setting::BYTES).zip(own) {
            bytes.copy_from_slice(&setting.to_bytes());
        }
        comm.core().bootstrap().all_gather(&mut all, BYTES as u64, comm.setup_deadline())?;
        for (peer, there) in (0..).zip(all.chunks_exact(BYTES)) {
            for (bytes, (what, setting)) in there.chunks_exact(Setting::BYTES).zip(own) {
                if bytes[..8] != setting.digest.to_le_bytes() {
                    let (here, there) = (setting.text.clone(), Setting::shown(bytes));
                    return Err(CollectiveError::Settings { what, rank, here, peer, there }.into());
                }
            }
        }
        Ok(())
    }
}

fn read_table(path: &Path) -> Result<(Table, String), CollectiveError> {
    let bad = |why: String| CollectiveError::Table { path: path.display().to_string(), why };
    let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
    let table = Table::from_json(&text).map_err(|error| bad(error.to_string()))?;
    Ok((table, text))
}
