//! One macro for all tables.

use std::ffi::OsStr;
use std::path::PathBuf;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Why a library cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The loader did not find it, or it does not load.
    #[error("{library}: {why}", library = .library.display())]
    Library {
        /// As it was asked for.
        library: PathBuf,
        /// The loader's words.
        why: String,
    },
    /// It is too old, or something else of that name.
    #[error("{library} has no {symbol}", library = .library.display())]
    Symbol {
        /// As it was asked for.
        library: PathBuf,
        /// The first missing symbol.
        symbol: &'static str,
    },
}

/// Linux: the library stays mapped when it is closed. Drivers keep threads and exit handlers.
const RTLD_NODELETE: i32 = 0x1000;

/// Opens a library by path or SONAME.
///
/// # Safety
/// Its initialisers run.
pub(crate) unsafe fn open(library: &OsStr) -> Result<Library, LoadError> {
    // SAFETY: the caller answers for the library's initialisers.
    unsafe { Library::open(Some(library), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) }
        .map_err(|error| LoadError::Library { library: library.into(), why: reason(library, &error) })
}

/// Maps a library without looking at its symbols, so that a later library that names it finds it: some depend on
/// others by SONAME without saying where those are. It stays mapped.
///
/// # Errors
/// [`LoadError::Library`].
///
/// # Safety
/// Its initialisers run.
pub unsafe fn preload(library: impl AsRef<OsStr>) -> Result<(), LoadError> {
    // SAFETY: the caller answers for the library's initialisers.
    unsafe { open(library.as_ref()) }.map(drop)
}

/// The loader's words, which often begin with the name; the error itself says only which call failed.
fn reason(library: &OsStr, error: &libloading::Error) -> String {
    let words = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    let name = format!("{}: ", library.display());
    words.strip_prefix(&name).unwrap_or(&words).to_owned()
}

/// Declares a table: a struct with a function pointer per symbol and `open`.
macro_rules! symbol_table {
    (
        $(#[$about:meta])*
        pub struct $table:ident;
        required { $($required:ident = $required_symbol:literal: fn($($parameter:ty),* $(,)?) -> $result:ty;)* }
        optional { $($optional:ident = $optional_symbol:literal: fn($($optional_parameter:ty),* $(,)?) -> $optional_result:ty;)* }
    ) => {
        $(#[$about])*
        #[derive(Debug)]
        #[allow(missing_docs, non_snake_case)] // named like the functions of the library
        pub struct $table {
            $(pub $required: unsafe extern "C" fn($($parameter),*) -> $result,)*
            $(pub $optional: Option<unsafe extern "C" fn($($optional_parameter),*) -> $optional_result>,)*
            /// The pointers above are into it.
            _library: libloading::os::unix::Library,
        }

        impl $table {
            /// The symbols without which the library is refused.
            pub const REQUIRED: &'static [&'static str] = &[$($required_symbol),*];
            /// The symbols that may be missing.
            pub const OPTIONAL: &'static [&'static str] = &[$($optional_symbol),*];

            /// Opens the library by path or SONAME, and looks every symbol up.
            ///
            /// # Errors
            /// [`LoadError`](crate::LoadError).
            ///
            /// # Safety
            /// It must be the library that the table describes, or one with the same functions: its initialisers
            /// run, and calls go by the signatures of the table.
            pub unsafe fn open(library: impl AsRef<std::ffi::OsStr>) -> Result<Self, crate::LoadError> {
                let name = library.as_ref();
                // SAFETY: the caller vouches for the library.
                let library = unsafe { $crate::table::open(name)? };
                Ok(Self {
                    $($required: {
                        // SAFETY: the caller vouches that the symbol has this type; the pointer stays valid
                        // because the table keeps the library.
                        let found = unsafe { library.get($required_symbol.as_bytes()) };
                        *found.map_err(|_| crate::LoadError::Symbol {
                            library: name.into(),
                            symbol: $required_symbol,
                        })?
                    },)*
                    $($optional: {
                        // SAFETY: as above.
                        let found = unsafe { library.get($optional_symbol.as_bytes()) };
                        found.ok().map(|symbol| *symbol)
                    },)*
                    _library: library,
                })
            }
        }
    };
}
pub(crate) use symbol_table;
