//! Colours: one per kind of span, chosen to differ for eyes that do not see red and green apart (Okabe and Ito).

use std::fmt::Write as _;

use crate::simulate::SpanKind;

pub(super) fn class(kind: SpanKind) -> &'static str {
    kind.name()
}

fn colour(kind: SpanKind) -> &'static str {
    match kind {
        SpanKind::Launch => "#b8bcc4",
        SpanKind::Copy => "#0072b2",
        SpanKind::Fold => "#d55e00",
        SpanKind::Packets => "#cc79a7",
        SpanKind::Signal => "#e69f00",
        SpanKind::Wait => "url(#hatch)",
        SpanKind::Request => "#f0e442",
        SpanKind::Message => "#009e73",
    }
}

/// Light, with a dark form for viewers that ask for it.
pub(super) fn style() -> String {
    let mut style = String::from(
        ".page{fill:#fff}text{fill:#24292f}.faint{fill:#57606a}.title{font-size:14px;font-weight:600}\
         .grid{stroke:#d8dee4;stroke-width:1}.lane{fill:#f6f8fa}.host{fill:none;stroke:#8c959f;stroke-width:1;stroke-dasharray:4 3}\
         .arrow{fill:none;stroke:#57606a;stroke-width:0.8}.edge{fill:none;stroke:#0072b2}.wire{fill:none;stroke:#009e73}\
         .rank{fill:#fff;stroke:#24292f;stroke-width:1.2}.critical{fill:none;stroke:#cf222e;stroke-width:2}.tail{fill:#009e73;fill-opacity:0.25}\n",
    );
    for kind in SpanKind::ALL {
        // Writing into a string does not fail.
        let _ = write!(style, ".{}{{fill:{};stroke:#fff;stroke-width:0.3}}", class(kind), colour(kind));
    }
    style.push('\n');
    style
}

/// What classes refer to: the hatching of waits, the heads of arrows.
pub(super) const DEFINITIONS: &str = r##"<pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="5" height="5" fill="#eef1f4"/><line x1="0" y1="0" x2="0" y2="5" stroke="#c3c9d1" stroke-width="1.6"/></pattern><marker id="head" viewBox="0 0 6 6" refX="5.4" refY="3" markerWidth="5" markerHeight="5" orient="auto"><path d="M0,0.6 L5.6,3 L0,5.4 z" fill="#57606a"/></marker>"##;
