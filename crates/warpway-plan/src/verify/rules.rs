//! The rules as a table: what each is about, and how bad it is under each profile.

use super::report::{Rule, Severity};

/// One rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleInfo {
    /// Its number.
    pub rule: Rule,
    /// What a finding means.
    pub summary: &'static str,
    /// How bad it is.
    pub standing: Standing,
}

/// How bad a finding of a rule is. What a pass reports as a warning or a note is never made worse, except as named
/// here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// An error under both profiles.
    Error,
    /// An error under the strict profile, a warning under the default one, because Warpway's executor repairs it.
    Repaired(
        /// How.
        &'static str,
    ),
    /// A warning.
    Warning,
    /// A warning, for plans of the catalogue an error.
    CatalogueError,
    /// A warning, for MSCCL++ an error.
    MscclppWarning,
    /// An error for MSCCL++, nothing for Warpway.
    MscclppError,
    /// A note.
    Info,
    /// The verdict is left open.
    Inconclusive,
    /// Not found by the verifier but by whoever sets a plan up or launches it.
    SetUp,
}

impl Rule {
    /// What is known of it; `None` for a number without a rule.
    pub fn info(self) -> Option<&'static RuleInfo> {
        RULES.binary_search_by_key(&self, |info| info.rule).ok().map(|at| &RULES[at])
    }
}

impl Standing {
    /// The severity under the strict profile and under the default one.
    pub fn severities(self) -> [Option<Severity>; 2] {
        use Severity::{Error, Info, Warning};
        match self {
            Self::Error => [Some(Error), Some(Error)],
            Self::Repaired(_) => [Some(Error), Some(Warning)],
            Self::Warning | Self::CatalogueError | Self::MscclppWarning | Self::Inconclusive => {
                [Some(Warning), Some(Warning)]
            }
            Self::Info => [Some(Info), Some(Info)],
            Self::MscclppError | Self::SetUp => [None, None],
        }
    }
}

const fn rule(rule: u16, standing: Standing, summary: &'static str) -> RuleInfo {
    RuleInfo { rule: Rule(rule), summary, standing }
}

/// Every rule, by number.
pub const RULES: &[RuleInfo] = {
    use Standing::*;
    &[
        rule(101, Error, "a field is missing or of another type"),
        rule(102, Error, "unknown operation"),
        rule(103, Error, "unknown name in a field that takes some names"),
        rule(104, Error, "an id does not equal its position"),
        rule(105, Error, "an operation lacks what it needs, or its lists differ in length"),
        rule(106, Warning, "unknown key"),
        rule(107, Error, "a pipeline within a pipeline"),
        rule(108, Error, "an operation that its type of channel does not do"),
        rule(109, Error, "a number out of range"),
        rule(110, Error, "an extension that is used but not listed, or listed but unknown"),
        rule(111, Error, "`order` is no permutation of the sources, or the operation is no fold"),
        rule(201, Error, "a channel position beyond the list of the block"),
        rule(202, Error, "a channel index beyond the list of the rank, or a channel that leads to no peer"),
        rule(203, Error, "a buffer_id beyond the list of the block, or a remote buffer without this access"),
        rule(204, Error, "a remote buffer index beyond the list of the rank, or a buffer of no peer"),
        rule(205, Error, "a switch reference beyond the list of the block, or a group that is none"),
        rule(206, Error, "chunks beyond the end of the owner's buffer"),
        rule(207, Error, "sources and destinations of an item differ in size"),
        rule(208, Warning, "an empty reference"),
        rule(209, Error, "chunk counts or sizes that do not fit the collective, or each other"),
        rule(210, Error, "a barrier or semaphore that does not exist"),
        rule(211, Error, "a group of blocks with gaps or members that are none"),
        rule(212, Error, "reuse mode: an operation or a slice that does not fit the scratch chunk"),
        rule(213, Error, "reuse mode: a reference to a peer's input or output"),
        rule(214, Error, "a pipeline that ends before its operations do"),
        rule(215, Error, "for a size given: offsets beyond scratch, buffers or 64 bits"),
        rule(216, Error, "sized chunks: a chunk without size id, or an item of several"),
        rule(217, Error, "sized chunks: a pipeline that does not run over one chunk of its size id"),
        rule(301, Error, "a signal or wait on a channel without partner"),
        rule(302, Error, "more signals than waits on a channel"),
        rule(303, Warning, "a relaxed signal for a wait that is not, or the reverse"),
        rule(304, Error, "a barrier with more participants than it is for, or of different opinions"),
        rule(305, Error, "a semaphore that does not return to its initial value"),
        rule(306, Warning, "several blocks wait on one channel"),
        rule(307, Warning, "several blocks signal on one channel"),
        rule(401, Error, "blocks wait for each other in a circle"),
        rule(402, Error, "a wait for a signal that nobody sends"),
        rule(403, Error, "a read of packets that nobody writes"),
        rule(404, Error, "a barrier to which too few blocks come, or not often enough"),
        rule(405, Error, "an acquire of a semaphore that nobody releases"),
        rule(406, Error, "more blocks than the device holds at a time"),
        rule(409, Inconclusive, "too long, or too many orders, to examine"),
        rule(501, Error, "two operations of a segment touch the same bytes: a nop is missing"),
        rule(502, Error, "two blocks of a rank touch the same bytes without order"),
        rule(503, Error, "two ranks touch the same bytes without order"),
        rule(504, Repaired("the named pairs run ordered"), "a relaxed pair where data must be ordered"),
        rule(505, Error, "the source of a port put is written before the put is known complete"),
        rule(506, Error, "a port put and the signal meant to publish it use different channels"),
        rule(
            507,
            Repaired("start handshake"),
            "an access to a peer's input or output before the peer is known to have started",
        ),
        rule(
            508,
            Error,
            "an access to a peer's input or output that the peer does not wait for before it ends",
        ),
        rule(
            509,
            Repaired("closing handshake"),
            "an access to scratch that is not ordered before another rank's in the next launch",
        ),
        rule(510, Error, "a nop is missing before a signal or after a wait"),
        rule(
            511,
            Repaired("such puts are flushed at the plan's end"),
            "a port put that is not known complete when its own rank ends",
        ),
        rule(601, Error, "a packet slot that is written twice in one launch"),
        rule(602, Error, "a read of packets of which only a part is written"),
        rule(603, MscclppError, "raw data and packets in the same bytes of MSCCL++'s scratch"),
        rule(604, Repaired("closing handshake"), "a packet slot that may be written again before it is read"),
        rule(605, Warning, "packets that nobody reads or forwards"),
        rule(607, MscclppWarning, "packet operations in a plan of protocol Simple"),
        rule(608, Error, "packets sent on over a port channel that are no packets"),
        rule(609, SetUp, "packets over a transport that tears 8-byte words"),
        rule(610, MscclppError, "raw scratch with double buffering"),
        rule(
            612,
            Info,
            "a scratch area that the plan cannot share with others: some rank does not know of every peer that it has ended the launch before, by its own end (double buffering) or its first write (without)",
        ),
        rule(701, Error, "an output chunk holds the wrong value"),
        rule(702, Error, "a contribution is missing, or counted twice"),
        rule(703, Error, "uninitialised data reaches an output, a peer or a fold"),
        rule(704, Error, "an output chunk is never written"),
        rule(706, Error, "one result mixes different operators"),
        rule(707, Info, "a plan without a known goal: its result is not checked"),
        rule(708, Info, "the result is not evaluated, because of other errors"),
        rule(711, CatalogueError, "fold trees of one element differ between ranks, so bits may differ"),
        rule(801, Error, "channels of a type in a block"),
        rule(802, Error, "channels of an operation"),
        rule(803, Error, "references of an operation"),
        rule(804, Error, "operations of a block"),
        rule(805, Error, "barriers or semaphores"),
        rule(806, Error, "for a size given: bytes of a buffer"),
        rule(807, Error, "for a size given: iterations of a pipeline"),
        rule(808, Error, "memories or semaphores of the proxy"),
        rule(809, Error, "threads of a block (found as V109)"),
        rule(810, Error, "blocks at a time, for MSCCL++ on the device given"),
        rule(811, Error, "an extension in a plan for MSCCL++"),
        rule(901, Error, "members disagree on multicast groups, their order or buffers"),
        rule(902, Error, "a rank uses a multicast group that it is no member of"),
        rule(903, Error, "the device cannot do this multicast operation"),
        rule(904, SetUp, "members bind a multicast buffer at different offsets"),
        rule(905, Repaired("the named pairs run ordered"), "multicast data exchanged by relaxed pairs only"),
    ]
};

/// The page docs/plan-rules.md.
pub fn rules_page() -> String {
    use std::fmt::Write;
    let mut page = "# Rules of the plan verifier\n\n\
        <!-- Generated from crates/warpway-plan/src/verify/rules.rs; a test compares. To write it anew:\n\
        \x20    UPDATE_DOCS=1 cargo nextest run -p warpway-plan rules_page -->\n\n\
        What `warpway plan verify` and `warpway_plan::verify` report. Errors reject a plan. Under the default profile\n\
        some are warnings, because Warpway's executor adds what is missing; for MSCCL++ (`--target mscclpp`) the strict\n\
        column counts. Findings of V3 to V9 may be waived, except V409.\n"
        .to_owned();
    let titles = [
        (1, "form"),
        (2, "references and sizes"),
        (3, "counts"),
        (4, "deadlocks"),
        (5, "races"),
        (6, "packets"),
        (7, "results"),
        (8, "limits of the executor"),
        (9, "multicast"),
    ];
    // Writing to a string does not fail.
    for (group, title) in titles {
        let _ = write!(
            page,
            "\n## V{group} {title}\n\n| rule | strict | default | meaning |\n|---|---|---|---|\n"
        );
        for info in RULES.iter().filter(|info| info.rule.0 / 100 == group) {
            let [strict, default] = info.standing.severities().map(|severity| match severity {
                Some(Severity::Error) => "error",
                Some(Severity::Warning) => "warning",
                Some(Severity::Info) => "info",
                None => "-",
            });
            let note = match info.standing {
                Standing::Repaired(how) => format!(" (repair: {how})"),
                Standing::CatalogueError => " (error for built-in plans)".to_owned(),
                Standing::MscclppWarning => " (error for MSCCL++)".to_owned(),
                Standing::MscclppError => " (error for MSCCL++ only)".to_owned(),
                Standing::Inconclusive => " (the verdict is \"inconclusive\")".to_owned(),
                Standing::SetUp => " (found at set-up or launch)".to_owned(),
                Standing::Error | Standing::Warning | Standing::Info => String::new(),
            };
            let _ = writeln!(page, "| {} | {strict} | {default} | {}{note} |", info.rule, info.summary);
        }
    }
    page
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn rules_are_in_order() {
        assert!(RULES.is_sorted_by(|a, b| a.rule < b.rule));
        assert_eq!(Rule(504).info().map(|info| info.rule), Some(Rule(504)));
        assert_eq!(Rule(505).info().unwrap().standing, Standing::Error);
        assert_eq!(Rule(606).info(), None);
    }

    #[test]
    fn rules_page_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/plan-rules.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, rules_page()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == rules_page(), "docs/plan-rules.md is stale; run this test with UPDATE_DOCS=1");
    }

    /// Every rule that a pass reports stands in the table.
    #[test]
    fn no_rule_is_without_an_entry() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/verify");
        let mut found = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
            for name in ["Diagnostic::error(", "Diagnostic::warning(", "Diagnostic::info("] {
                for after in text.split(name).skip(1) {
                    let digits: String =
                        after.trim_start().chars().take_while(char::is_ascii_digit).collect();
                    if let Ok(number) = digits.parse() {
                        assert!(Rule(number).info().is_some(), "V{number}");
                        found += 1;
                    }
                }
            }
        }
        assert!(found > 40, "{found}");
    }
}
