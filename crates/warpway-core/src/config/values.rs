//! Types of settings, and the parsers of the table. A parser's error is what would have been accepted.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::bootstrap::{AddressFamily, MAX_RANKS, NameFilter, RootAddress};
use crate::deadline::Timeout;
use crate::fifo::MAX_FIFO_SIZE;

/// A secret shared by the ranks of a job. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapToken(String);

impl BootstrapToken {
    /// From any text that is not empty.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BootstrapToken(..)")
    }
}

/// Engine asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EngineChoice {
    /// CUDA if the driver loads and shows a device, else host memory.
    Auto,
    /// CUDA or an error.
    Cuda,
    /// Host memory.
    Host,
}

/// How RDMA adapters signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VerbsMode {
    /// With atomics.
    Host,
    /// Without.
    HostNoAtomic,
}

/// What verification of a plan does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PlanVerify {
    /// Nothing.
    Off,
    /// Findings are logged.
    Warn,
    /// Findings refuse the plan.
    Error,
}

/// Rules that plans must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PlanProfile {
    /// The usual ones.
    Default,
    /// All.
    Strict,
}

/// Where compiled things are kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CacheFolder {
    /// Where the system keeps caches: [`Config::cache_folder`](super::Config::cache_folder).
    Usual,
    /// Nowhere.
    Off,
    /// Here.
    At(PathBuf),
}

/// The signal that makes a process dump its flight recorder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DumpSignal {
    /// None.
    Off,
    /// The signal of this number.
    Number(i32),
}

pub(super) type Parsed<T> = Result<T, String>;

/// A value that has no default.
pub(super) fn optional<T>(parse: impl Fn(&str) -> Parsed<T>) -> impl Fn(&str) -> Parsed<Option<T>> {
    move |text| parse(text).map(Some)
}

pub(super) fn text(text: &str) -> Parsed<String> {
    Ok(text.into())
}

pub(super) fn token(text: &str) -> Parsed<BootstrapToken> {
    Ok(BootstrapToken::new(text))
}

pub(super) fn boolean(text: &str) -> Parsed<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("1, true, yes, on, 0, false, no or off".into()),
    }
}

/// Decimal digits and nothing else.
pub(super) fn whole<T: FromStr>(text: &str) -> Parsed<T> {
    let bits = 8 * size_of::<T>();
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits
        .then(|| text.parse().ok())
        .flatten()
        .ok_or_else(|| format!("a whole number of at most {bits} bits, in decimal digits"))
}

pub(super) fn positive(text: &str) -> Parsed<u32> {
    whole(text).ok().filter(|n| *n > 0).ok_or_else(|| "a whole number above 0, in decimal digits".into())
}

pub(super) fn port(text: &str) -> Parsed<u16> {
    whole(text).ok().filter(|n| *n > 0).ok_or_else(|| "a port, 1 to 65535".into())
}

pub(super) fn fifo_size(text: &str) -> Parsed<u64> {
    whole(text)
        .ok()
        .filter(|n: &u64| n.is_power_of_two() && (2..=MAX_FIFO_SIZE).contains(n))
        .ok_or_else(|| format!("a power of two from 2 to {MAX_FIFO_SIZE}"))
}

pub(super) fn world_size(text: &str) -> Parsed<u32> {
    whole(text)
        .ok()
        .filter(|n| (1..=MAX_RANKS).contains(n))
        .ok_or_else(|| format!("a number of ranks, 1 to {MAX_RANKS}, in decimal digits"))
}

/// A number of bytes, with one of the units of 1024 if wanted.
pub(super) fn bytes(text: &str) -> Parsed<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_start() {
        "" => Some(0),
        "KiB" => Some(10),
        "MiB" => Some(20),
        "GiB" => Some(30),
        _ => None,
    };
    shift
        .and_then(|shift| whole::<u64>(number).ok()?.checked_mul(1 << shift))
        .ok_or_else(|| "a number of bytes, or one followed by KiB, MiB or GiB".into())
}

/// 0 is no limit.
pub(super) fn seconds(text: &str) -> Parsed<Timeout> {
    let seconds = whole(text).map_err(|_| "a whole number of seconds, 0 for no limit")?;
    Ok(if seconds == 0 { Timeout::NONE } else { Timeout::after(Duration::from_secs(seconds)) })
}

/// 0 is no limit.
pub(super) fn milliseconds(text: &str) -> Parsed<Timeout> {
    let milliseconds = whole(text).map_err(|_| "a whole number of milliseconds, 0 for no limit")?;
    Ok(if milliseconds == 0 { Timeout::NONE } else { Timeout::after(Duration::from_millis(milliseconds)) })
}

/// A path as the kernel takes it: `~` is the shell's, and would be a folder of that name here.
pub(super) fn path(text: &str) -> Parsed<PathBuf> {
    if text.starts_with('~') {
        return Err("a path without ~, which only shells expand".into());
    }
    Ok(text.into())
}

/// A folder named `off` is `./off`.
pub(super) fn cache_folder(text: &str) -> Parsed<CacheFolder> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(CacheFolder::Off);
    }
    path(text).map(CacheFolder::At).map_err(|expected| format!("off, or {expected}"))
}

pub(super) fn list(text: &str) -> Parsed<Vec<String>> {
    let items: Vec<String> = text.split(',').map(|item| item.trim().to_owned()).collect();
    if items.iter().any(String::is_empty) { Err("a comma list without gaps".into()) } else { Ok(items) }
}

/// One of a few words, in any case.
pub(super) fn word<T: Copy>(words: &[(&str, T)], text: &str) -> Parsed<T> {
    words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)).map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        words.join(", ")
    })
}

pub(super) fn engine(text: &str) -> Parsed<EngineChoice> {
    word(&[("auto", EngineChoice::Auto), ("cuda", EngineChoice::Cuda), ("host", EngineChoice::Host)], text)
}

pub(super) fn verbs_mode(text: &str) -> Parsed<VerbsMode> {
    word(&[("host", VerbsMode::Host), ("host-no-atomic", VerbsMode::HostNoAtomic)], text)
}

pub(super) fn plan_verify(text: &str) -> Parsed<PlanVerify> {
    word(&[("off", PlanVerify::Off), ("warn", PlanVerify::Warn), ("error", PlanVerify::Error)], text)
}

pub(super) fn plan_profile(text: &str) -> Parsed<PlanProfile> {
    word(&[("default", PlanProfile::Default), ("strict", PlanProfile::Strict)], text)
}

pub(super) fn mscclpp(text: &str) -> Parsed<bool> {
    word(&[("mscclpp", true)], text)
}

pub(super) fn sentinel(text: &str) -> Parsed<bool> {
    word(&[("num_experts", true), ("-1", false)], text)
}

pub(super) fn family(text: &str) -> Parsed<AddressFamily> {
    word(&[("AF_INET", AddressFamily::V4), ("AF_INET6", AddressFamily::V6)], text)
}

pub(super) fn interface_names(text: &str) -> Parsed<NameFilter> {
    text.parse().map_err(|never| match never {})
}

pub(super) fn root_address(text: &str) -> Parsed<RootAddress> {
    text.parse()
}

pub(super) fn nccl_version(text: &str) -> Parsed<u32> {
    let known: [u32; 5] = [22809, 22907, 23007, 23102, 23203];
    whole(text).ok().filter(|n| known.contains(n)).ok_or_else(|| "22809, 22907, 23007, 23102 or 23203".into())
}

pub(super) fn dump_signal(text: &str) -> Parsed<DumpSignal> {
    use rustix::process::Signal;
    let number = |signal: Signal| DumpSignal::Number(signal.as_raw());
    word(
        &[
            ("SIGUSR1", number(Signal::USR1)),
            ("SIGUSR2", number(Signal::USR2)),
            ("SIGHUP", number(Signal::HUP)),
            ("off", DumpSignal::Off),
        ],
        text,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n67_booleans_and_integers_are_strict() {
        for (text, value) in [("1", true), ("TRUE", true), ("Yes", true), ("on", true)] {
            assert_eq!(boolean(text), Ok(value));
        }
        for (text, value) in [("0", false), ("False", false), ("NO", false), ("off", false)] {
            assert_eq!(boolean(text), Ok(value));
        }
        for bad in ["2", "y", "t", "enable", " 1", "1 ", "-1", "01"] {
            assert!(boolean(bad).is_err(), "{bad:?}");
        }
        assert_eq!(whole::<u32>("4294967295"), Ok(u32::MAX));
        assert_eq!(whole::<u64>("007"), Ok(7));
        for bad in ["4294967296", "-1", "+1", "1x", "x", "0x10", "1.0", " 1", "1e3", ""] {
            assert!(whole::<u32>(bad).is_err(), "{bad:?}");
        }
        assert!(port("0").is_err() && port("65536").is_err() && port("65535") == Ok(65535));
        for bad in ["0", "1", "48", "2097152", "9223372036854775808"] {
            assert!(fifo_size(bad).is_err(), "{bad:?}");
        }
        assert_eq!((fifo_size("2"), fifo_size("64"), fifo_size("1048576")), (Ok(2), Ok(64), Ok(1 << 20)));
        assert!(world_size("0").is_err() && world_size("1048577").is_err());
        assert_eq!((world_size("1"), world_size("1048576")), (Ok(1), Ok(1 << 20)));
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes("4095"), Ok(4095));
        assert_eq!(bytes("128 MiB"), Ok(128 << 20));
        assert_eq!(bytes("3GiB"), Ok(3 << 30));
        assert_eq!(bytes("17KiB"), Ok(17 << 10));
        for bad in ["MiB", "1 MB", "1M", "1.5 GiB", "18446744073709551615 KiB", "-1", "1 KiB "] {
            assert!(bytes(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn zero_is_no_limit() {
        assert_eq!(seconds("0"), Ok(Timeout::NONE));
        assert_eq!(seconds("2"), Ok(Timeout::after(Duration::from_secs(2))));
        assert_eq!(milliseconds("0"), Ok(Timeout::NONE));
        assert_eq!(milliseconds("1500"), Ok(Timeout::after(Duration::from_millis(1500))));
        assert!(seconds("-1").is_err());
    }

    #[test]
    fn tokens_are_not_printed() {
        assert_eq!(format!("{:?}", token("hunter2").unwrap()), "BootstrapToken(..)");
    }
}
