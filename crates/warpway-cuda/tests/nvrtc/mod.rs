//! NVRTC in tests: CI must have it.

use warpway_core::config::{Config, Environment};
use warpway_cuda::jit::Compiler;

/// With the environment of this process but for these variables.
pub(crate) fn open(variables: &[(&str, &str)]) -> Compiler {
    let own = std::env::vars().filter(|(name, _)| !variables.iter().any(|(set, _)| set == name));
    let set = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let environment: Environment = own.chain(set).collect();
    Compiler::new(&Config::read(&environment).unwrap().config, &environment)
}

/// A compiler without a folder; `None` after saying so where there is no NVRTC.
pub(crate) fn nvrtc() -> Option<Compiler> {
    let compiler = open(&[("WARPWAY_CACHE_DIR", "off")]);
    match compiler.identity() {
        Ok(_) => Some(compiler),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{error}");
            eprintln!("skipped: {error}");
            None
        }
    }
}
