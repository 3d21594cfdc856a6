//! What machine the fake is: `devices=2,arch=90,peers=none`.

/// The machine. Read from `FAKE_CUDA` when the library is first called, changed by `set` before `cuInit`.
#[derive(Debug, Clone)]
pub(super) struct Config {
    /// Devices of the machine that this process sees, in its order: `devices=2` or `visible=1+0`.
    pub(super) visible: Vec<u32>,
    /// `arch=90`: compute capability 9.0.
    pub(super) architecture: (i32, i32),
    /// `peers=all`, `peers=none`, or the pairs that reach each other, both ways, by the machine's numbers: `peers=0-1+2-3`.
    pub(super) peers: Peers,
    /// `memory=1073741824`: bytes of each device.
    pub(super) memory: u64,
    /// `version=13000`.
    pub(super) version: i32,
    /// `sms=132`.
    pub(super) multiprocessors: i32,
    /// `ipc=no`: plain allocations cannot be exported either, as those of a memory pool.
    pub(super) ipc: bool,
    /// `descriptors=no`: memory cannot be exported.
    pub(super) descriptors: bool,
    /// `fabric=claimed`: the attribute says that fabric handles exist, but nobody has set a domain up, so memory for them is
    /// refused. `fabric=works`.
    pub(super) fabric: Fabric,
    /// `words=no`: streams do not write 64-bit words by themselves.
    pub(super) words: bool,
    /// `multicast=yes`: the attribute says so; nothing else does.
    pub(super) multicast: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fabric {
    None,
    Claimed,
    Works,
}

#[derive(Debug, Clone)]
pub(super) enum Peers {
    All,
    None,
    Pairs(Vec<(u32, u32)>),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            visible: vec![0, 1],
            architecture: (9, 0),
            peers: Peers::All,
            memory: 1 << 30,
            version: 13_000,
            multiprocessors: 132,
            descriptors: true,
            ipc: true,
            fabric: Fabric::None,
            words: true,
            multicast: false,
        }
    }
}

impl Config {
    /// The default, changed by the variable.
    ///
    /// # Panics
    /// If it does not parse: a test that misspells its machine must not run on another one.
    pub(super) fn from_env() -> Self {
        let mut config = Self::default();
        if let Ok(text) = std::env::var("FAKE_CUDA") {
            config.apply(&text).expect("FAKE_CUDA");
        }
        config
    }

    /// Changes what the text names.
    pub(super) fn apply(&mut self, text: &str) -> Result<(), String> {
        for setting in text.split(',').filter(|setting| !setting.is_empty()) {
            let (key, value) = setting.split_once('=').ok_or_else(|| format!("{setting}: no ="))?;
            self.set(key, value).ok_or_else(|| format!("{setting}: not understood"))?;
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        let yes = || match value {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        };
        match key {
            "devices" => self.visible = (0..value.parse().ok()?).collect(),
            "visible" => {
                self.visible = value.split('+').map(|number| number.parse().ok()).collect::<Option<_>>()?;
            }
            "arch" => {
                let number: i32 = value.parse().ok()?;
                self.architecture = (number / 10, number % 10);
            }
            "peers" => {
                self.peers = match value {
                    "all" => Peers::All,
                    "none" => Peers::None,
                    pairs => Peers::Pairs(pairs.split('+').map(pair).collect::<Option<_>>()?),
                }
            }
            "memory" => self.memory = value.parse().ok()?,
            "version" => self.version = value.parse().ok()?,
            "sms" => self.multiprocessors = value.parse().ok()?,
            "descriptors" => self.descriptors = yes()?,
            "ipc" => self.ipc = yes()?,
            "words" => self.words = yes()?,
            "fabric" => {
                self.fabric = match value {
                    "no" => Fabric::None,
                    "claimed" => Fabric::Claimed,
                    "works" => Fabric::Works,
                    _ => return None,
                }
            }
            "multicast" => self.multicast = yes()?,
            _ => return None,
        }
        Some(())
    }

    /// Whether two devices of the machine reach each other.
    pub(super) fn reaches(&self, from: u32, to: u32) -> bool {
        match &self.peers {
            Peers::All => from != to,
            Peers::None => false,
            Peers::Pairs(pairs) => pairs.contains(&(from, to)) || pairs.contains(&(to, from)),
        }
    }
}

fn pair(text: &str) -> Option<(u32, u32)> {
    let (one, other) = text.split_once('-')?;
    Some((one.parse().ok()?, other.parse().ok()?))
}
