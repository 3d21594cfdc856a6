//! Findings, and how they are shown.

use std::fmt::Write as _;

use serde::Serialize;

use super::gpu::Gpus;

/// How a finding is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    /// Fine.
    Ok,
    /// Works, but could be better.
    Warn,
    /// Jobs will not work.
    Fail,
}

impl Status {
    /// `Ok` or `Warn`.
    pub(super) fn warn_if(condition: bool) -> Self {
        if condition { Self::Warn } else { Self::Ok }
    }

    fn label(self, colours: bool) -> &'static str {
        match (self, colours) {
            (Self::Ok, false) => "ok  ",
            (Self::Warn, false) => "warn",
            (Self::Fail, false) => "FAIL",
            (Self::Ok, true) => "\x1b[32mok  \x1b[0m",
            (Self::Warn, true) => "\x1b[33mwarn\x1b[0m",
            (Self::Fail, true) => "\x1b[31mFAIL\x1b[0m",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    area: &'static str,
    name: String,
    status: Status,
    value: String,
    /// What to do if the status is not `Ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

/// All findings, in the order in which they are shown.
#[derive(Debug, Default)]
pub(super) struct Report {
    findings: Vec<Finding>,
    /// What the findings say of GPUs, as data.
    pub(super) gpus: Gpus,
}

/// The form of `--json`.
#[derive(Serialize)]
pub(super) struct ReportJson<'a> {
    ok: bool,
    warnings: usize,
    failures: usize,
    findings: &'a [Finding],
    gpu: &'a Gpus,
}

/// Findings of one area.
pub(super) struct Area<'a> {
    name: &'static str,
    report: &'a mut Report,
}

impl Report {
    /// Starts an area; its findings follow.
    pub(super) fn area(&mut self, name: &'static str) -> Area<'_> {
        Area { name, report: self }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.count(Status::Fail) > 0
    }

    pub(super) fn json(&self) -> ReportJson<'_> {
        ReportJson {
            ok: !self.has_failed(),
            warnings: self.count(Status::Warn),
            failures: self.count(Status::Fail),
            findings: &self.findings,
            gpu: &self.gpus,
        }
    }

    pub(super) fn text(&self, colours: bool) -> String {
        let width = self.findings.iter().map(|finding| finding.name.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        let mut area = "";
        for finding in &self.findings {
            if finding.area != area {
                area = finding.area;
                let _ = writeln!(text, "{}{area}", if text.is_empty() { "" } else { "\n" });
            }
            let Finding { name, status, value, hint, .. } = finding;
            let _ = writeln!(text, "  {}  {name:width$}  {value}", status.label(colours));
            if let Some(hint) = hint {
                let _ = writeln!(text, "        {:width$}  -> {hint}", "");
            }
        }
        let (warnings, failures) = (self.count(Status::Warn), self.count(Status::Fail));
        let _ = match (failures, warnings) {
            (0, 0) => writeln!(text, "\nall is well"),
            (0, warnings) => writeln!(text, "\nworks; {warnings} could be better"),
            (failures, warnings) => writeln!(text, "\n{failures} failed, {warnings} could be better"),
        };
        text
    }

    fn count(&self, status: Status) -> usize {
        self.findings.iter().filter(|finding| finding.status == status).count()
    }
}

impl Area<'_> {
    /// Adds a fact that is neither good nor bad, or good.
    pub(super) fn ok(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.add(name, Status::Ok, value, "");
    }

    /// Adds a finding; the hint is shown only if the status is not `Ok`.
    pub(super) fn add(
        &mut self,
        name: impl Into<String>,
        status: Status,
        value: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let hint = Some(hint.into()).filter(|hint| status != Status::Ok && !hint.is_empty());
        self.report.findings.push(Finding {
            area: self.name,
            name: name.into(),
            status,
            value: value.into(),
            hint,
        });
    }
}

/// 1536 → "1.5 KiB".
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    // Rounding is fine: it is for reading.
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() == 0.0 {
        format!("{value} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(8 << 20), "8 MiB");
        assert_eq!(bytes(u64::MAX), "16384 PiB");
    }

    #[test]
    fn hints_are_for_what_is_not_well() {
        let mut report = Report::default();
        report.area("a").add("x", Status::Ok, "1", "no need");
        report.area("a").add("longer", Status::Warn, "2", "do this");
        assert!(!report.has_failed());
        report.area("b").add("y", Status::Fail, "3", "do that");
        assert!(report.has_failed());
        assert_eq!(
            report.text(false),
            "a\n  ok    x       1\n  warn  longer  2\n                -> do this\n\
             \nb\n  FAIL  y       3\n                -> do that\n\n1 failed, 1 could be better\n"
        );
    }
}
