//! The kernels.

use crate::jit::Program;

/// A program of `device/bench`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Source {
    Transfer,
    Bulk,
    Flight,
    Ring,
    Ports,
    Exchange,
}

/// Depths of the plain copies.
pub(super) const DEPTHS: [u32; 2] = [4, 8];

/// Bytes of a tile, tiles, tiles that loads run ahead, of the plain bulk copies.
pub(super) const BULK: [(u32, u32, u32); 3] = [(32768, 3, 2), (32768, 6, 3), (16384, 12, 6)];

impl Source {
    const ALL: [Self; 6] =
        [Self::Transfer, Self::Bulk, Self::Flight, Self::Ring, Self::Ports, Self::Exchange];

    pub(super) fn program(self) -> Program {
        let (name, text) = match self {
            Self::Transfer => ("transfer.cu", include_str!("../../device/bench/transfer.cu")),
            Self::Bulk => ("bulk.cu", include_str!("../../device/bench/bulk.cu")),
            Self::Flight => ("flight.cu", include_str!("../../device/bench/flight.cu")),
            Self::Ring => ("ring.cu", include_str!("../../device/bench/ring.cu")),
            Self::Ports => ("ports.cu", include_str!("../../device/bench/ports.cu")),
            Self::Exchange => ("exchange.cu", include_str!("../../device/bench/exchange.cu")),
        };
        let program = Program::new(name, text).device_headers();
        self.kernels().into_iter().fold(program, Program::kernel)
    }

    fn kernels(self) -> Vec<String> {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        match self {
            Self::Transfer => {
                let mut all = own(&["channel_get", "fill_pattern", "check_pattern", "gate"]);
                all.extend([true, false].map(channel_put));
                for depth in DEPTHS {
                    all.extend([true, false].map(|interleaved| plain(depth, interleaved)));
                }
                all
            }
            Self::Bulk => own(&["bulk_put"]).into_iter().chain(BULK.map(plain_bulk)).collect(),
            Self::Flight => super::Flight::all().map(|flight| flight.kernel()).collect(),
            Self::Ring => own(&["echo", "push_and_wait", "stamp"]),
            Self::Ports => own(&["port_flight", "port_stream"]),
            Self::Exchange => own(&["exchange"]),
        }
    }
}

fn guard(guarded: bool) -> &'static str {
    if guarded { "Guard::Poison" } else { "Guard::None" }
}

/// The expression of the channel's put.
pub(super) fn channel_put(guarded: bool) -> String {
    format!("channel_put<{}>", guard(guarded))
}

/// The expression of a plain copy.
pub(super) fn plain(depth: u32, interleaved: bool) -> String {
    format!("plain_{}<{depth}>", if interleaved { "interleaved" } else { "parts" })
}

/// The expression of a plain bulk copy.
pub(super) fn plain_bulk((bytes, tiles, ahead): (u32, u32, u32)) -> String {
    format!("plain_bulk<{bytes}, {tiles}, {ahead}>")
}

/// The expression of a ping-pong.
pub(super) fn flight(message: &str, guarded: bool, bounded: bool) -> String {
    format!("flight<Message::{message}, {}, {bounded}>", guard(guarded))
}

/// All programs of the measurements, for compiling them ahead of time. `bulk.cu` needs sm_90.
pub fn programs() -> Vec<Program> {
    Source::ALL.map(Source::program).into()
}
