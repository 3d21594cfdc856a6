//! The environment as a value, so that nothing but [`Environment::of_process`] reads the process's own.

use std::collections::BTreeMap;

use super::ConfigError;

/// Names and values of environment variables. An empty value counts as not set.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// That of this process.
    ///
    /// # Errors
    /// `config.value` if a `WARPWAY_` or `MSCCLPP_` variable is not UTF-8; others are passed over.
    pub fn of_process() -> Result<Self, ConfigError> {
        let mut variables = BTreeMap::new();
        for (name, value) in std::env::vars_os() {
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => {
                    variables.insert(name, value);
                }
                Err(value) if name.starts_with("WARPWAY_") || name.starts_with("MSCCLPP_") => {
                    return Err(ConfigError::Value {
                        variable: name,
                        value: value.to_string_lossy().into_owned(),
                        expected: "text in UTF-8".into(),
                    });
                }
                Err(_) => {}
            }
        }
        Ok(Self(variables))
    }

    /// The value of a variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Names of the variables that are set and not empty, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, value)| !value.is_empty()).map(|(name, _)| name.as_str())
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(variables: T) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl std::fmt::Debug for Environment {
    /// Names only: values may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
