//! What a rank tells its peers when it launches a plan: the fingerprint that must be equal on both, and where its
//! buffers are.

use warpway_core::wire::SlotId;
use warpway_plan::{Collective, DataType, ReduceOp};

/// Words of a record in memory, its sequence number excluded.
pub(super) const WORDS: usize = 28;
/// A record in memory. What differs from launch to launch comes first, next to the sequence number.
pub(super) type Words = [u64; WORDS];
/// Those that must be equal on both ranks.
const FINGERPRINT: std::ops::Range<usize> = 0..11;
/// The one that differs by reader.
const EXTENTS: usize = 24;
/// Those of the name.
const FUNCTION: std::ops::Range<usize> = 25..27;
/// The one that changes while the launch goes on: whom its rank waits for, plus 1.
pub(super) const WAITS: usize = 27;

/// The beginning of a function's name, filled up with zeros.
pub(super) type Label = [u8; 16];

/// Of a plan that is set up for some function.
pub(super) fn label(function: Option<&str>) -> Label {
    let mut label = Label::default();
    if let Some(name) = function {
        let end = name.floor_char_boundary(label.len());
        label[..end].copy_from_slice(&name.as_bytes()[..end]);
    }
    label
}

/// What a record tells of. Ranks do the same steps in the same order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A plan is launched.
    Launch,
    /// A plan is set up.
    SetUp,
    /// A call is refused: its rank takes no part in this step. Everything else means nothing then.
    Refused,
}

/// Of a step in the word that has the collective.
const SET_UP: u64 = 1 << 32;
const REFUSED: u64 = 1 << 33;

/// Where the root is, plus 1, in the word that has the payload of packets.
const ROOT: u32 = 8;

/// See the module's page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LaunchRecord {
    pub(super) step: Step,
    pub(super) collective: Collective,
    /// What the plan is for, where that is known. Not compared: functions that share a collective have different plans.
    pub(super) function: Label,
    pub(super) identity: [u8; 32],
    /// Bytes of a chunk, and of a block where they do not divide evenly.
    pub(super) chunk_bytes: u64,
    pub(super) block_bytes: u64,
    pub(super) data_type: DataType,
    /// Of the plan's folds, if it has any.
    pub(super) reduce_op: Option<ReduceOp>,
    /// Of plans that have one.
    pub(super) root: Option<u32>,
    pub(super) packet_payload: u64,
    /// Digest of the scratch areas: ranks that made other launches before may have others.
    pub(super) areas: u64,
    /// Not compared: they may differ between ranks.
    pub(super) input: BufferRecord,
    pub(super) output: BufferRecord,
    /// Where the rows of a plan with sized chunks are.
    pub(super) rows: Option<SlotId>,
    /// Digest of the extents that writer and reader both use; differs by reader. Compared only where the rows are not.
    pub(super) extents: u64,
}

/// A buffer of the launching rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BufferRecord {
    pub(super) bytes: u64,
    /// Where peers find it, if they need it.
    pub(super) place: Option<(SlotId, u64)>,
}

/// The first field in which two records differ: its name, here, there.
pub(super) type Difference = (&'static str, String, String);

impl LaunchRecord {
    /// Of a step that launches nothing.
    pub(super) fn without_launch(
        step: Step,
        collective: Collective,
        function: Label,
        plan: [u8; 32],
    ) -> Self {
        Self {
            step,
            collective,
            function,
            identity: plan,
            chunk_bytes: 0,
            block_bytes: 0,
            data_type: DataType::Uint8,
            reduce_op: None,
            root: None,
            packet_payload: 0,
            areas: 0,
            input: BufferRecord::default(),
            output: BufferRecord::default(),
            rows: None,
            extents: 0,
        }
    }

    /// What the launch is for, as its caller knows it.
    fn function(&self) -> Option<String> {
        let name = self.function.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
        Some(String::from_utf8_lossy(name).into_owned())
    }

    fn operation(&self) -> String {
        self.function().unwrap_or_else(|| self.collective.to_string())
    }

    pub(super) fn difference(&self, there: &Self) -> Option<Difference> {
        fn differ<T: PartialEq>(
            a: T,
            b: T,
            field: &'static str,
            text: impl Fn(T) -> String,
        ) -> Option<Difference> {
            (a != b).then(|| (field, text(a), text(b)))
        }
        let size = |record: &Self| {
            format!("{} bytes of input and {} of output", record.input.bytes, record.output.bytes)
        };
        let op = |op: Option<ReduceOp>| op.map_or_else(|| "none".to_owned(), |op| op.to_string());
        let root = |root: Option<u32>| root.map_or_else(|| "none".to_owned(), |root| root.to_string());
        let sizes = |record: &Self| (record.chunk_bytes, record.block_bytes);
        // A step of another kind has no sizes to compare.
        let step = |record: &Self| match record.step {
            Step::Launch => format!("launch of {} with {}", record.operation(), size(record)),
            Step::SetUp => format!("set-up of a plan for {}", record.operation()),
            Step::Refused => "a call that was refused".to_owned(),
        };
        // Chunks of different plans tell nothing of counts; the plans may differ because the counts do.
        let plan = |record: &Self| {
            let function = record.function().map(|name| format!("{name} by ")).unwrap_or_default();
            format!("{function}{} with {}", hexadecimal(&record.identity), size(record))
        };
        let operation = || ("operation", self.operation(), there.operation());
        (self.step != there.step)
            .then(|| ("step", step(self), step(there)))
            .or_else(|| (self.collective != there.collective).then(operation))
            // Types first: equal counts of unequal types give unequal sizes.
            .or_else(|| differ(self.data_type, there.data_type, "data type", |t| t.to_string()))
            .or_else(|| differ(self.reduce_op, there.reduce_op, "reduce operation", op))
            .or_else(|| differ(self.root, there.root, "root", root))
            .or_else(|| (self.identity != there.identity).then(|| ("plan", plan(self), plan(there))))
            .or_else(|| (sizes(self) != sizes(there)).then(|| ("count", size(self), size(there))))
            .or_else(|| {
                differ(self.packet_payload, there.packet_payload, "packet type", |payload| match payload {
                    8 => "LL16".to_owned(),
                    _ => "LL8".to_owned(),
                })
            })
            .or_else(|| {
                let text = |digest| {
                    format!("areas with digest {digest:016x} (have all launched and set up the same before?)")
                };
                differ(self.areas, there.areas, "scratch", text)
            })
    }

    pub(super) fn to_words(self) -> Words {
        let mut words = [0; WORDS];
        let collective = Collective::NAMED.iter().position(|(value, _)| *value == self.collective);
        words[0] = self.areas;
        words[1] = collective.map_or(u64::MAX, |at| at as u64);
        words[1] |= match self.step {
            Step::Launch => 0,
            Step::SetUp => SET_UP,
            Step::Refused => REFUSED,
        };
        for (word, bytes) in words[FUNCTION].iter_mut().zip(self.function.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        words[2] = self.chunk_bytes;
        words[3] = self.block_bytes;
        words[4] = u64::from(self.data_type.number());
        let op = self.reduce_op.and_then(|op| ReduceOp::NAMED.iter().position(|(value, _)| *value == op));
        words[5] = op.map_or(0, |at| at as u64 + 1);
        words[6] = self.packet_payload | self.root.map_or(0, |root| u64::from(root) + 1) << ROOT;
        for (word, bytes) in words[7..11].iter_mut().zip(self.identity.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        for (words, buffer) in words[11..21].chunks_exact_mut(5).zip([self.input, self.output]) {
            let (slot, offset) = buffer.place.unwrap_or((SlotId { slot: u64::MAX, generation: 0 }, 0));
            words.copy_from_slice(&[
                buffer.bytes,
                u64::from(buffer.place.is_some()),
                slot.slot,
                slot.generation,
                offset,
            ]);
        }
        if let Some(SlotId { slot, generation }) = self.rows {
            words[21..24].copy_from_slice(&[1, slot, generation]);
        }
        words[EXTENTS] = self.extents;
        words
    }

    /// Renews the digest of the areas, which changes with every launch.
    pub(super) fn put_areas(&self, words: &mut Words) {
        words[0] = self.areas;
    }

    /// `None` for what no rank of this version writes.
    pub(super) fn from_words(words: &Words) -> Option<Self> {
        let buffer = |words: &[u64]| {
            let place = (SlotId { slot: words[2], generation: words[3] }, words[4]);
            BufferRecord { bytes: words[0], place: (words[1] == 1).then_some(place) }
        };
        let mut identity = [0; 32];
        for (bytes, word) in identity.chunks_exact_mut(8).zip(&words[7..11]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let mut function = Label::default();
        for (bytes, word) in function.chunks_exact_mut(8).zip(&words[FUNCTION]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let reduce_op = match words[5].checked_sub(1) {
            None => None,
            Some(at) => Some(ReduceOp::NAMED.get(usize::try_from(at).ok()?)?.0),
        };
        Some(Self {
            step: match words[1] & (SET_UP | REFUSED) {
                0 => Step::Launch,
                SET_UP => Step::SetUp,
                REFUSED => Step::Refused,
                _ => return None,
            },
            collective: Collective::NAMED.get(usize::try_from(words[1] & !(SET_UP | REFUSED)).ok()?)?.0,
            function,
            identity,
            chunk_bytes: words[2],
            block_bytes: words[3],
            data_type: DataType::from_number(u8::try_from(words[4]).ok()?).ok()?,
            reduce_op,
            root: match words[6] >> ROOT {
                0 => None,
                above => Some(u32::try_from(above - 1).ok()?),
            },
            packet_payload: words[6] & ((1 << ROOT) - 1),
            input: buffer(&words[11..16]),
            output: buffer(&words[16..21]),
            rows: (words[21] == 1).then_some(SlotId { slot: words[22], generation: words[23] }),
            extents: extents(words),
            areas: words[0],
        })
    }
}

/// What the packets of a launch say of it: 32 bits of the words that must be equal on both ranks. Ranks that have
/// launched something else wait for other marks, and look at the records meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marks {
    /// Of the words that stay from launch to launch.
    stem: u64,
}

impl Marks {
    pub(super) fn of(words: &Words) -> Self {
        let lasting = words[FINGERPRINT].iter().skip(1);
        Self { stem: lasting.fold(0xcbf2_9ce4_8422_2325, |stem, word| Self::join(stem, *word)) }
    }

    /// With the word that changes.
    #[inline]
    pub(super) fn with_areas(self, digest: u64) -> u32 {
        (Self::join(self.stem, digest) >> 32) as u32
    }

    /// Every bit of the result depends on every bit of both (the finaliser of MurmurHash3).
    #[inline]
    fn join(stem: u64, word: u64) -> u64 {
        let mut value = stem.rotate_left(29) ^ word;
        value = (value ^ value >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        value = (value ^ value >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        value ^ value >> 33
    }
}

/// The words that agree if [`LaunchRecord::difference`] finds none.
pub(super) fn fingerprint(words: &Words) -> &[u64] {
    &words[FINGERPRINT]
}

/// True if [`LaunchRecord::difference`] finds none.
pub(super) fn agree(here: &Words, there: &Words) -> bool {
    here[FINGERPRINT] == there[FINGERPRINT]
}

/// The difference between records that do not [`agree`]. A record that this version does not read differs, too: the
/// words themselves are all that can be shown then.
pub(super) fn disagreement(record: &LaunchRecord, here: &Words, there: &Words) -> Difference {
    let named = LaunchRecord::from_words(there).and_then(|there| record.difference(&there));
    named.unwrap_or_else(|| {
        let text = |words: &Words| {
            let words: Vec<String> = words[FINGERPRINT].iter().map(|word| format!("{word:x}")).collect();
            words.join(" ")
        };
        ("record", text(here), format!("{} (of another version?)", text(there)))
    })
}

/// True if its rank has refused the call.
pub(super) fn is_refused(words: &Words) -> bool {
    words[1] & REFUSED != 0
}

/// Whom its rank waits for, if it has waited long.
pub(super) fn waits_for(words: &Words) -> Option<u32> {
    words[WAITS].checked_sub(1).and_then(|rank| u32::try_from(rank).ok())
}

/// The digest for the reader.
pub(super) fn extents(words: &Words) -> u64 {
    words[EXTENTS]
}

/// The same record for another reader.
pub(super) fn with_extents(words: &Words, digest: u64) -> Words {
    let mut words = *words;
    words[EXTENTS] = digest;
    words
}

/// The first eight bytes, for people.
pub(super) fn hexadecimal(identity: &[u8; 32]) -> String {
    identity[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> LaunchRecord {
        let identity = std::array::from_fn(|at| at as u8 * 7 + 1);
        let place = Some((SlotId { slot: 3, generation: 9 }, 64));
        LaunchRecord {
            step: Step::Launch,
            collective: Collective::AllToAll,
            function: label(Some("all_to_all_v")),
            identity,
            chunk_bytes: 32,
            block_bytes: 17,
            data_type: DataType::Bfloat16,
            reduce_op: Some(ReduceOp::Max),
            root: Some(u32::MAX),
            packet_payload: 4,
            areas: 0xfedc,
            input: BufferRecord { bytes: 34, place },
            output: BufferRecord { bytes: 35, place: None },
            rows: Some(SlotId { slot: 5, generation: 2 }),
            extents: 0x1234_5678_9abc_def0,
        }
    }

    #[test]
    fn records_survive_their_words() {
        assert_eq!(LaunchRecord::from_words(&record().to_words()), Some(record()));
        let none = LaunchRecord { reduce_op: None, root: None, rows: None, ..record() };
        assert_eq!(LaunchRecord::from_words(&none.to_words()), Some(none));
        for step in [Step::SetUp, Step::Refused] {
            let other = LaunchRecord { step, ..record() };
            assert_eq!(LaunchRecord::from_words(&other.to_words()), Some(other));
            assert_eq!(is_refused(&other.to_words()), step == Step::Refused);
        }
        let long = LaunchRecord { function: label(Some("reduce_scatter_v2")), ..record() };
        assert_eq!(long.operation(), "reduce_scatter_v");
        assert_eq!(LaunchRecord::from_words(&long.to_words()), Some(long));
        assert_eq!(LaunchRecord { function: label(None), ..record() }.operation(), "alltoall");
        assert_eq!(LaunchRecord::from_words(&[u64::MAX; WORDS]), None);
    }

    /// The words that are compared are those of which differences are named.
    #[test]
    fn words_agree_exactly_where_records_have_no_difference() {
        let here = record();
        let elsewhere = BufferRecord { bytes: 99, place: None };
        for there in [
            here,
            LaunchRecord { input: elsewhere, output: elsewhere, rows: None, ..here },
            LaunchRecord { extents: 1, ..here },
            LaunchRecord { areas: 1, ..here },
            LaunchRecord { collective: Collective::AllReduce, ..here },
            LaunchRecord { step: Step::SetUp, ..here },
            LaunchRecord { step: Step::Refused, ..here },
            LaunchRecord { function: label(None), ..here },
            LaunchRecord { identity: [0; 32], ..here },
            LaunchRecord {
                identity: std::array::from_fn(|at| here.identity[at] ^ u8::from(at == 31)),
                ..here
            },
            LaunchRecord { chunk_bytes: 33, ..here },
            LaunchRecord { block_bytes: 18, ..here },
            LaunchRecord { data_type: DataType::Float16, ..here },
            LaunchRecord { reduce_op: None, ..here },
            LaunchRecord { root: Some(0), ..here },
            LaunchRecord { root: None, ..here },
            LaunchRecord { reduce_op: Some(ReduceOp::Sum), ..here },
            LaunchRecord { packet_payload: 8, ..here },
        ] {
            let same = here.difference(&there).is_none();
            assert_eq!(agree(&here.to_words(), &there.to_words()), same, "{there:?}");
        }
        let other = with_extents(&here.to_words(), 5);
        assert_eq!(LaunchRecord::from_words(&other), Some(LaunchRecord { extents: 5, ..here }));
    }

    /// Else a rank of another version would look like one that has launched the same.
    #[test]
    fn a_record_that_cannot_be_read_differs() {
        let here = record();
        let words = here.to_words();
        for (at, unknown) in [(1, 99), (4, 255), (4, 1 << 40), (5, 77)] {
            let mut there = words;
            there[at] = unknown;
            assert_eq!(LaunchRecord::from_words(&there), None);
            let (field, ours, theirs) = disagreement(&here, &words, &there);
            assert_eq!(field, "record");
            let (ours, theirs): (Vec<&str>, Vec<&str>) =
                (ours.split(' ').collect(), theirs.split(' ').collect());
            assert_eq!((ours.len(), ours[0], theirs[at]), (11, "fedc", format!("{unknown:x}").as_str()));
            assert!((0..11).all(|word| word == at || ours[word] == theirs[word]), "{ours:?} {theirs:?}");
        }
        let there = LaunchRecord { packet_payload: 8, ..here }.to_words();
        assert_eq!(disagreement(&here, &words, &there), ("packet type", "LL8".into(), "LL16".into()));
    }

    #[test]
    fn the_first_difference_is_named_with_both_values() {
        let here = record();
        assert_eq!(here.difference(&here), None);
        // Buffers may lie and end elsewhere.
        let elsewhere = BufferRecord { bytes: 99, place: None };
        assert_eq!(here.difference(&LaunchRecord { input: elsewhere, ..here }), None);
        let there = LaunchRecord { data_type: DataType::Float16, chunk_bytes: 16, ..here };
        assert_eq!(here.difference(&there), Some(("data type", "bfloat16".into(), "float16".into())));
        let there = LaunchRecord { chunk_bytes: 16, ..here };
        let (field, text, _) = here.difference(&there).unwrap();
        assert_eq!((field, text.as_str()), ("count", "34 bytes of input and 35 of output"));
        let there = LaunchRecord { identity: [0; 32], ..here };
        assert_eq!(here.difference(&there).unwrap().0, "plan");
        let there = LaunchRecord { packet_payload: 8, ..here };
        assert_eq!(here.difference(&there), Some(("packet type", "LL8".into(), "LL16".into())));
        let there = LaunchRecord { areas: 1, ..here };
        let (field, text, _) = here.difference(&there).unwrap();
        assert_eq!((field, &text[..34]), ("scratch", "areas with digest 000000000000fedc"));
    }
}
