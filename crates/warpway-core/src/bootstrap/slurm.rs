//! The two list notations of Slurm.

/// The first host of `node[001-003,007],gpu5`.
pub(super) fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list;
    while let Some(at) = rest.find(['[', ',']) {
        host.push_str(&rest[..at]);
        if rest[at..].starts_with(',') {
            rest = "";
            break;
        }
        let (ranges, after) = rest[at + 1..].split_once(']')?;
        host.push_str(ranges.split([',', '-']).next()?);
        rest = after;
    }
    host.push_str(rest);
    (!host.is_empty()).then_some(host)
}

/// How many tasks the node of this number has, from `2(x3),1`.
pub(super) fn tasks_of_node(list: &str, node: u32) -> Option<u32> {
    let mut first = 0u32;
    for item in list.split(',') {
        let (tasks, repeat) = match item.split_once("(x") {
            Some((tasks, repeat)) => (tasks, repeat.strip_suffix(')')?.parse().ok()?),
            None => (item, 1),
        };
        first = first.checked_add(repeat)?;
        if node < first {
            return tasks.parse().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn first_hosts() {
        for (list, host) in [
            ("node1", "node1"),
            ("node1,node2", "node1"),
            ("node[001-003,007],gpu5", "node001"),
            ("node[7,9-12]-ib", "node7-ib"),
            ("rack[1-2]node[04-08]", "rack1node04"),
            ("gpu5,node[1-2]", "gpu5"),
        ] {
            assert_eq!(first_host(list).as_deref(), Some(host), "{list}");
        }
        for bad in ["", ",", "node[1-2", "[]"] {
            assert_eq!(first_host(bad), None, "{bad}");
        }
    }

    #[test]
    fn tasks_per_node() {
        let tasks = |list| (0..6).map(|node| tasks_of_node(list, node)).collect::<Vec<_>>();
        assert_eq!(tasks("2(x3),1"), [Some(2), Some(2), Some(2), Some(1), None, None]);
        assert_eq!(tasks("4"), [Some(4), None, None, None, None, None]);
        assert_eq!(tasks("1,2(x2),17"), [Some(1), Some(2), Some(2), Some(17), None, None]);
        for bad in ["", "x", "2(x", "2(x3", "(x2)", "2(x4294967295),2(x2)"] {
            assert_eq!(tasks_of_node(bad, u32::MAX), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "[a-z0-9,()x\\[\\]-]{0,40}", node: u32) {
            let _ = first_host(&text);
            let _ = tasks_of_node(&text, node);
        }
    }
}
