//! Who sends how many bytes to whom.

use std::collections::BTreeMap;
use std::f64::consts::TAU;

use super::palette::{self, DEFINITIONS};
use super::svg::{Anchor, Svg, bytes, n};
use crate::simulate::{Request, SimulateError, moved};

/// Bytes by sender and receiver; reading from a peer counts as sent by it.
pub type Traffic = BTreeMap<(u32, u32), u64>;

/// What a plan moves between ranks for a message: data, without the flags of packets.
///
/// # Errors
/// A message that the plan does not take.
pub fn traffic(plan: &crate::Plan, request: &Request<'_>) -> Result<Traffic, SimulateError> {
    moved(plan, request)
}

/// A picture of the traffic: ranks around a circle, those of a host side by side; the wider an edge, the more bytes.
/// Between hosts edges are green. `host_of` gives the host of each rank.
pub fn graph(traffic: &Traffic, host_of: &[u32], title: &str) -> String {
    let n_ranks = host_of.len().max(1);
    let radius = (26.0 * n_ranks as f64 / TAU * 2.2).clamp(110.0, 420.0);
    let size = 2.0 * radius + 150.0;
    let (middle_x, middle_y) = (size / 2.0, size / 2.0 + 34.0);
    let mut svg = Svg::new(size, size + 40.0);
    svg.text([16.0, 24.0], Anchor::Start, "title", title);
    let total: u64 = traffic.values().sum();
    let wire: u64 =
        traffic.iter().filter(|((a, b), _)| host(host_of, *a) != host(host_of, *b)).map(|(_, n)| n).sum();
    let mut text = format!("{} between {} pairs of ranks", bytes(total as f64), traffic.len());
    if wire > 0 {
        text += &format!(", {} of it between hosts", bytes(wire as f64));
    }
    svg.text([16.0, 42.0], Anchor::Start, "faint", &text);
    // A host's ranks are closer to each other than to the next host's.
    let n_hosts = host_of.iter().max().map_or(1, |last| last + 1);
    let gap = if n_hosts > 1 { 0.6 } else { 0.0 };
    let slots = n_ranks as f64 + f64::from(n_hosts) * gap;
    let place = |rank: u32| {
        let slot = f64::from(rank) + f64::from(host(host_of, rank)) * gap;
        let angle = TAU * slot / slots - TAU / 4.0;
        (angle, [middle_x + radius * angle.cos(), middle_y + radius * angle.sin()])
    };
    let most = traffic.values().copied().max().unwrap_or(1).max(1) as f64;
    for ((from, to), amount) in traffic {
        let ([x1, y1], [x2, y2]) = (place(*from).1, place(*to).1);
        // Bent to the right of its direction, so that both directions are seen.
        let (dx, dy) = (x2 - x1, y2 - y1);
        let bend = 0.14;
        let (cx, cy) = ((x1 + x2) / 2.0 - dy * bend, (y1 + y2) / 2.0 + dx * bend);
        // Ends stay outside the circles of the ranks.
        let cut = |[x, y]: [f64; 2], [tx, ty]: [f64; 2], by: f64| {
            let length = ((tx - x).powi(2) + (ty - y).powi(2)).sqrt().max(1.0);
            [x + (tx - x) / length * by, y + (ty - y) / length * by]
        };
        let [x1, y1] = cut([x1, y1], [cx, cy], 15.0);
        let [x2, y2] = cut([x2, y2], [cx, cy], 17.0);
        let class = if host(host_of, *from) == host(host_of, *to) { "edge" } else { "wire" };
        let width = 0.8 + 4.2 * (*amount as f64 / most);
        let path = format!("M{},{} Q{},{} {},{}", n(x1), n(y1), n(cx), n(cy), n(x2), n(y2));
        let title = format!("rank {from} to rank {to}: {}", bytes(*amount as f64));
        let attributes = format!(r#"stroke-width="{}" opacity="0.75" marker-end="url(#tip)""#, n(width));
        svg.path(&path, class, &attributes, &title);
        if traffic.len() <= 24 {
            let [lx, ly] = [(x1 + 2.0 * cx + x2) / 4.0, (y1 + 2.0 * cy + y2) / 4.0];
            svg.text([lx, ly + 3.5], Anchor::Middle, "label", &bytes(*amount as f64));
        }
    }
    for rank in 0..n_ranks as u32 {
        let (angle, at) = place(rank);
        svg.circle(at, 13.0, "rank");
        svg.text([at[0], at[1] + 4.0], Anchor::Middle, "name", &rank.to_string());
        let first = rank == 0 || host(host_of, rank - 1) != host(host_of, rank);
        if n_hosts > 1 && first {
            let last = (rank..n_ranks as u32)
                .take_while(|other| host(host_of, *other) == host(host_of, rank))
                .last();
            let to = last.map_or(angle, |last| place(last).0);
            host_arc(&mut svg, [middle_x, middle_y], radius + 26.0, (angle, to), host(host_of, rank));
        }
    }
    let tip = r#"<marker id="tip" viewBox="0 0 6 6" refX="4.5" refY="3" markerWidth="7" markerHeight="7" markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0.4 L5.8,3 L0,5.6 z" fill="context-stroke"/></marker>"#;
    let style =
        palette::style() + ".label{font-size:9.5px;paint-order:stroke;stroke:#fff;stroke-width:3px}\n";
    svg.finish(&style, &format!("{DEFINITIONS}{tip}"))
}

fn host(host_of: &[u32], rank: u32) -> u32 {
    host_of.get(rank as usize).copied().unwrap_or(0)
}

/// An arc around the ranks of a host, with its name.
fn host_arc(svg: &mut Svg, [x, y]: [f64; 2], radius: f64, (from, to): (f64, f64), host: u32) {
    let margin = 16.0 / radius;
    let (from, to) = (from - margin, to + margin);
    let at = |angle: f64, radius: f64| [x + radius * angle.cos(), y + radius * angle.sin()];
    let ([x1, y1], [x2, y2]) = (at(from, radius), at(to, radius));
    let large = u32::from(to - from > TAU / 2.0);
    let r = n(radius);
    svg.path(&format!("M{},{} A{r},{r} 0 {large} 1 {},{}", n(x1), n(y1), n(x2), n(y2)), "host", "", "");
    let [tx, ty] = at((from + to) / 2.0, radius + 18.0);
    svg.text([tx, ty + 4.0], Anchor::Middle, "faint", &format!("host {host}"));
}
