//! What the assembler reports of each kernel (`ptxas -v`), taken out of the compiler's log.

use std::collections::BTreeMap;

use super::image::Resources;

/// Divides a log into what people should read and what each kernel needs, by symbol.
pub(super) fn split(log: &str) -> (String, BTreeMap<String, Resources>) {
    let mut words = String::new();
    let mut kernels: BTreeMap<String, Resources> = BTreeMap::new();
    // The entry function whose report follows; between reports also those of functions that it calls.
    let mut entry: Option<String> = None;
    let mut is_entry = false;
    for line in log.lines() {
        let Some(report) = report(line) else {
            words.push_str(line);
            words.push('\n');
            continue;
        };
        if let Some(rest) = report.strip_prefix("Compiling entry function") {
            entry = rest.split('\'').nth(1).map(str::to_owned);
            is_entry = true;
            if let Some(symbol) = &entry {
                kernels.insert(symbol.clone(), Resources::default());
            }
            continue;
        }
        if let Some(function) = report.strip_prefix("Function properties for ") {
            is_entry = entry.as_deref() == Some(function.trim());
            continue;
        }
        let Some(kernel) = entry.as_ref().and_then(|symbol| kernels.get_mut(symbol)) else { continue };
        for item in report.split(", ") {
            let item = item.trim().trim_start_matches("Used ").trim_start_matches("used ");
            let Some((number, what)) = item.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "bytes spill stores" if is_entry => kernel.spill_store_bytes = number,
                "bytes spill loads" if is_entry => kernel.spill_load_bytes = number,
                // What called functions need comes on top; the cumulative size, later, has all.
                "bytes stack frame" if is_entry => kernel.stack_bytes = number,
                "bytes cumulative stack size" => kernel.stack_bytes = number,
                // A function that is called spills for its caller.
                "bytes spill stores" => kernel.spill_store_bytes += number,
                "bytes spill loads" => kernel.spill_load_bytes += number,
                "registers" => kernel.registers = number,
                "barriers" => kernel.barriers = number,
                "bytes smem" => kernel.shared_bytes = number,
                _ => {}
            }
        }
    }
    (words, kernels)
}

/// The text of a line if it is one of a report. Warnings and remarks of the assembler are for people.
fn report(line: &str) -> Option<&str> {
    let text = match line.strip_prefix("ptxas") {
        Some(rest) => {
            let rest = rest.trim_start();
            rest.strip_prefix("info").map_or(rest, str::trim_start).trim_start_matches([':', '.']).trim()
        }
        // Older ones put no name before the second line of a function.
        None if line.starts_with(' ') => line.trim(),
        None => return None,
    };
    let is_report = ["Compiling entry function", "Function properties for ", "Used ", "Compile time ="]
        .iter()
        .any(|start| text.starts_with(start))
        || ["bytes gmem", "bytes stack frame", "bytes spill loads"].iter().any(|word| text.contains(word));
    is_report.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_cuda_13() {
        let log = "k.cu(3): warning #177-D: variable \"unused\" was declared\n  int unused;\n      ^\n\n\
            ptxas info    : 0 bytes gmem, 24 bytes cmem[4]\n\
            ptxas info    : Compiling entry function '_Z2tkILi3EEvPf' for 'sm_90'\n\
            ptxas info    : Function properties for _Z2tkILi3EEvPf\n\
            ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
            ptxas info    : Used 10 registers, used 0 barriers\n\
            ptxas info    : Compile time = 1.552 ms\n\
            ptxas info    : (C7508) Potential Performance Loss\n\
            ptxas info    : Compiling entry function 'k' for 'sm_90'\n\
            ptxas info    : Function properties for k\n\
            ptxas         .     256 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n\
            ptxas info    : Used 32 registers, used 2 barriers, 256 bytes cumulative stack size, 1040 bytes smem\n\
            ptxas info    : Compile time = 10.592 ms\n\
            ptxas info    : Function properties for helper\n\
            ptxas         .     8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n";
        let (words, kernels) = split(log);
        assert_eq!(
            words,
            "k.cu(3): warning #177-D: variable \"unused\" was declared\n  int unused;\n      ^\n\n\
             ptxas info    : (C7508) Potential Performance Loss\n"
        );
        let small = Resources { registers: 10, ..Resources::default() };
        let large = Resources {
            registers: 32,
            stack_bytes: 256,
            spill_store_bytes: 16,
            spill_load_bytes: 20,
            shared_bytes: 1040,
            barriers: 2,
        };
        assert_eq!(kernels, BTreeMap::from([("_Z2tkILi3EEvPf".to_owned(), small), ("k".to_owned(), large)]));
    }

    #[test]
    fn a_report_of_cuda_12() {
        let log = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'k' for 'sm_80'\n\
            ptxas info    : Function properties for k\n\
            \x20   0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
            ptxas info    : Used 255 registers, used 1 barriers, 352 bytes cmem[0]\n";
        let (words, kernels) = split(log);
        assert_eq!(words, "");
        let expected = Resources { registers: 255, barriers: 1, ..Resources::default() };
        assert_eq!(kernels, BTreeMap::from([("k".to_owned(), expected)]));
    }

    #[test]
    fn nothing_is_read_into_other_words() {
        for log in ["", "Used 3 registers\n", "k.cu(1): error: Function properties for k\n", "ptxas\n"] {
            assert_eq!(split(log), (log.to_owned(), BTreeMap::new()), "{log}");
        }
    }
}
