//! Topology files: written and read back; what is wrong with one is named with its line and key.

use warpway_plan::simulate::{Machine, machine_schema};

#[test]
fn the_example_survives_its_file() {
    for machine in [Machine::example(), Machine::plain(3)] {
        let text = machine.to_json();
        assert_eq!(Machine::from_json(&text).as_ref(), Ok(&machine));
        assert_eq!(Machine::from_json(&text).unwrap().to_json(), text);
    }
    let found = Machine::example().ranks_per_host();
    assert_eq!(found, [4, 4]);
}

/// The example with one line changed; what is said of it.
fn changed(from: &str, to: &str) -> String {
    let text = Machine::example().to_json();
    let changed = text.replacen(from, to, 1);
    assert_ne!(text, changed, "{from}");
    Machine::from_json(&changed).unwrap_err().to_string()
}

#[test]
fn findings_name_line_and_key() {
    let text = Machine::example().to_json();
    let line = |what: &str| 1 + text[..text.find(what).unwrap()].matches('\n').count();
    assert_eq!(
        changed("\"cores\": 8", "\"cores\": 0"),
        format!("line {}, hosts[0].cores: a whole number, 1 or more", line("\"cores\""))
    );
    assert_eq!(
        changed("\"cores\": 8", "\"cores\": 1.5"),
        format!("line {}, hosts[0].cores: a whole number, 1 or more", line("\"cores\""))
    );
    assert_eq!(
        changed("\"message_ns\": 100.0", "\"message_ns\": \"fast\""),
        format!("line {}, hosts[0].nics[0].message_ns: a number", line("\"message_ns\""))
    );
    assert_eq!(
        changed("\"message_ns\": 100.0", "\"message_ns\": -1"),
        format!("line {}, hosts[0].nics[0].message_ns: 0 or more nanoseconds", line("\"message_ns\""))
    );
    assert_eq!(
        changed("\"packet_read\": 5.0", "\"packet_read\": 0"),
        format!("line {}, hosts[0].memory[0].packet_read: a number above 0", line("\"packet_read\""))
    );
    assert_eq!(
        changed("\"bfloat16\"", "\"float12\""),
        format!(
            "line {}, costs.fold.float12: no data type `float12`: use one of {}",
            line("\"bfloat16\""),
            warpway_plan::DataType::ALL.map(|data_type| data_type.to_string()).join(", ")
        )
    );
    assert_eq!(
        changed("\"step_ns\"", "\"steps_ns\""),
        format!("line {}, costs.step_ns: the key is missing", line("\"costs\""))
    );
    assert!(changed("\"rank\": 3", "\"rnk\": 3").contains("stragglers[0].rank: the key is missing"));
    let unknown = changed("\"wire_latency_ns\"", "\"wire_latency\"");
    assert!(
        unknown.starts_with(&format!(
            "line {}, wire_latency: no such key; there are: format, name, ",
            line("\"wire_")
        )),
        "{unknown}"
    );
    assert_eq!(
        changed("warpway topology 1", "warpway topology 2"),
        format!("line {}, format: this reads \"warpway topology 1\"", line("\"format\""))
    );
    // A link of hosts that there are not, or the same twice; a rank that is late twice.
    let inside = 1 + line("\"inside\"");
    assert_eq!(
        changed("\"inside\": [\n        0\n", "\"inside\": [\n        2\n"),
        format!("line {inside}, links[0].inside[0]: there is no host 2: `hosts` has 2")
    );
    assert_eq!(
        changed("\"inside\": [\n        0\n", "\"inside\": [\n        0,\n        0\n"),
        format!("line {}, links[0].inside[1]: host 0 is there twice", inside + 1)
    );
    let late = changed("\"stragglers\": [\n", "\"stragglers\": [\n    {\"rank\": 3},\n");
    assert_eq!(late, format!("line {}, stragglers[1]: rank 3 is there twice", line("\"stragglers\"") + 2));
    // A number of another unit has another key.
    let unit = changed("\"latency_ns\"", "\"latency_us\"");
    assert!(
        unit.starts_with(&format!("line {}, links[0].latency_us: no such key", line("\"latency_ns\""))),
        "{unit}"
    );
    let text_in_number = changed("\"step_ns\": 10.0", "\"step_ns\": \"10 ns\"");
    assert_eq!(text_in_number, format!("line {}, costs.step_ns: a number", line("\"step_ns\"")));
    let levels = changed("\"up_to_bytes\": 32768", "\"up_to_bytes\": 33554432");
    assert!(levels.ends_with("hosts[0].memory: at least one level, ascending by `up_to_bytes`"), "{levels}");
}

#[test]
fn what_is_no_json_is_named_by_its_line() {
    let error = |text: &str| Machine::from_json(text).unwrap_err().to_string();
    assert_eq!(error(""), "line 1: the file ends too early");
    assert_eq!(error("{\n  \"format\": x\n}"), "line 2: a value expected");
    assert_eq!(error("{\n  \"a\": 1,\n  \"a\": 2\n}"), "line 3, a: the key is there twice");
    assert_eq!(error("{\"a\": 1\n \"b\": 2}"), "line 2: `,` expected");
    assert_eq!(error("{\"a\": \"x\n\"}"), "line 1: the text has no end on this line");
    assert_eq!(error("{\"a\": 1e999}"), "line 1: `1e999` is no number");
    assert_eq!(error("{} {}"), "line 1: something follows the end of the document");
    assert_eq!(error("[]"), "line 1: an object");
    assert_eq!(error(&"[".repeat(100_000)), "line 1: lists and objects lie too deep in each other");
    assert_eq!(error("{\"format\": \"\\u00\"}").split(':').next(), Some("line 1"));
}

/// Every key that the reader takes is in the schema, and no other.
#[test]
fn the_schema_has_the_keys_of_the_file() {
    let schema: serde_json::Value = serde_json::from_str(&machine_schema()).unwrap();
    let mut machine = Machine::example();
    machine.hosts[0].rank_link = Some(300.0);
    let file: serde_json::Value = serde_json::from_str(&machine.to_json()).unwrap();
    compare(&schema, &file, "");
}

fn compare(schema: &serde_json::Value, file: &serde_json::Value, path: &str) {
    match file {
        serde_json::Value::Object(members) => {
            let properties = schema["properties"].as_object();
            for (key, value) in members {
                match properties {
                    Some(properties) => {
                        let inner = properties
                            .get(key)
                            .unwrap_or_else(|| panic!("{path}.{key} is not in the schema"));
                        compare(inner, value, &format!("{path}.{key}"));
                    }
                    None => compare(&schema["additionalProperties"], value, &format!("{path}.{key}")),
                }
            }
            for key in properties.into_iter().flat_map(serde_json::Map::keys) {
                assert!(members.contains_key(key), "the file has no {path}.{key}");
            }
        }
        serde_json::Value::Array(elements) => {
            elements.iter().for_each(|element| compare(&schema["items"], element, &format!("{path}[]")));
        }
        serde_json::Value::Number(_) => {
            assert!(matches!(schema["type"].as_str(), Some("number" | "integer")), "{path}");
        }
        _ => {}
    }
}

#[test]
fn the_published_schema_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/topology.schema.json");
    assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), machine_schema(), "write it anew: {path}");
}
