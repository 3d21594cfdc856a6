//! The compiler's words, each with the lines that it is about. NVRTC reads from memory, so nobody could look there.

use std::fmt::Write as _;

/// Lines shown before and after the one that is meant.
const AROUND: usize = 2;
/// Generated lines may be long.
const WIDTH: usize = 160;

/// Puts source lines into a log. `file` gives the text of a file by the name in messages; what is said of other
/// files stays as it is.
pub(super) fn with_lines<'a>(log: &str, file: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut shown = String::new();
    let mut lines = log.lines().peekable();
    while let Some(line) = lines.next() {
        shown.push_str(line);
        shown.push('\n');
        let Some((name, number)) = position(line) else { continue };
        let Some(text) = file(name) else { continue };
        let source: Vec<&str> = text.lines().collect();
        let Some(meant) = number.checked_sub(1).and_then(|at| source.get(at)) else { continue };
        // The compiler quotes the line and points into it; ours take their place.
        let mut caret = None;
        if lines.peek().and_then(|quote| quote.strip_prefix("  ")).is_some_and(|quote| quote == *meant) {
            lines.next();
            if let Some(pointer) = lines.peek().filter(|pointer| pointer.trim() == "^") {
                caret = pointer.find('^').and_then(|column| column.checked_sub(2));
                lines.next();
            }
        }
        excerpt(&mut shown, &source, number, caret);
    }
    shown.truncate(shown.trim_end().len());
    shown
}

/// Lines around line `number`, which exists.
fn excerpt(shown: &mut String, source: &[&str], number: usize, caret: Option<usize>) {
    let first = number.saturating_sub(AROUND).max(1);
    let last = (number + AROUND).min(source.len());
    let width = last.to_string().len();
    for at in first..=last {
        let mark = if at == number { '>' } else { ' ' };
        let line: String = source[at - 1].chars().take(WIDTH).collect();
        let _ = writeln!(shown, "{}", format!("{mark} {at:width$} | {line}").trim_end());
        if let Some(column) = caret.filter(|column| at == number && *column < WIDTH) {
            // Tabs keep their width.
            let margin: String =
                line.chars().take(column).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            let _ = writeln!(shown, "  {:width$} | {margin:column$}^", "");
        }
    }
}

/// File and line of a message: `a/h.cuh(2): error: …`.
fn position(line: &str) -> Option<(&str, usize)> {
    let (name, rest) = ["): error", "): warning", "): catastrophic error", "): remark", "): note"]
        .iter()
        .find_map(|kind| line.split_once(kind).map(|(place, _)| place))?
        .rsplit_once('(')?;
    Some((name, rest.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_source_and_headers() {
        let log = "a/h.cuh(2): error: expected a \")\"\n  int f( {\n        ^\n\n\
            k.cu(7): warning #177-D: unused\n\
            other.h(1): error: what\n  text\n  ^\n\n\
            k.cu(99): error: beyond\n\
            k.cu(0): error: before\n\
            2 errors detected in the compilation of \"k.cu\".\n\n\n";
        let source = "1\n2\n3\n4\n5\n6\n\tx = y;\n8\n9\n10\n";
        let shown = with_lines(log, |name| match name {
            "a/h.cuh" => Some("#define H\nint f( {\n"),
            "k.cu" => Some(source),
            _ => None,
        });
        assert_eq!(
            shown,
            "a/h.cuh(2): error: expected a \")\"\n  1 | #define H\n> 2 | int f( {\n    |       ^\n\n\
             k.cu(7): warning #177-D: unused\n  5 | 5\n  6 | 6\n> 7 | \tx = y;\n  8 | 8\n  9 | 9\n\
             other.h(1): error: what\n  text\n  ^\n\n\
             k.cu(99): error: beyond\n\
             k.cu(0): error: before\n\
             2 errors detected in the compilation of \"k.cu\"."
        );
    }

    #[test]
    fn line_numbers_are_aligned_and_long_lines_cut() {
        let source = format!("{}\n{}", "\n".repeat(8), "é".repeat(400));
        let shown = with_lines("k(10): error: e", |_| Some(&source));
        assert_eq!(shown, format!("k(10): error: e\n   8 |\n   9 |\n> 10 | {}", "é".repeat(WIDTH)));
    }

    #[test]
    fn a_pointer_below_a_line_with_tabs() {
        let shown = with_lines("k(1): error: e\n  \tab\n    ^\n", |_| Some("\tab"));
        assert_eq!(shown, "k(1): error: e\n> 1 | \tab\n    | \t ^");
    }

    #[test]
    fn names_with_brackets() {
        assert_eq!(position("a(b).cu(12): error: (3): error"), Some(("a(b).cu", 12)));
        assert_eq!(position("At end of source: error: expected a \"}\""), None);
        assert_eq!(position("k(x): error: e"), None);
    }
}
