//! What happens around every function: log, injected failures, initialisation, panics.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use warpway_cuda_sys::driver_types::{
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_UNKNOWN, CUresult,
};

/// What the inside of a function returns.
pub(super) type Answer<T = ()> = Result<T, CUresult>;

/// Locks, also after a panic under the lock: the books are for tests, and the panic was reported as an error.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls and failures, apart from the state of the driver so that no call waits for it.
#[derive(Default)]
pub(super) struct Book {
    pub(super) initialised: bool,
    failures: Vec<Failure>,
    calls: VecDeque<(&'static str, CUresult)>,
}

struct Failure {
    /// `*` for any function.
    function: String,
    /// Fails when it has come down to 1.
    remaining: u64,
    code: CUresult,
}

/// The log keeps that many calls.
const KEPT_CALLS: usize = 100_000;

pub(super) fn book() -> MutexGuard<'static, Book> {
    static BOOK: OnceLock<Mutex<Book>> = OnceLock::new();
    lock(BOOK.get_or_init(|| {
        let mut book = Book::default();
        // `cuMemCreate:2=2,cuIpcOpenMemHandle:1=201`: function, which call from now on, code.
        for failure in
            std::env::var("FAKE_CUDA_FAIL").unwrap_or_default().split(',').filter(|text| !text.is_empty())
        {
            let (call, code) = failure.split_once('=').expect("FAKE_CUDA_FAIL: function:nth=code");
            let (function, nth) = call.split_once(':').expect("FAKE_CUDA_FAIL: function:nth=code");
            book.fail(function, nth.parse().expect("a number"), code.parse().expect("a code"));
        }
        Mutex::new(book)
    }))
}

impl Book {
    /// The nth call of a function from now on fails with a code, without any effect.
    pub(super) fn fail(&mut self, function: &str, nth: u64, code: CUresult) {
        self.failures.push(Failure { function: function.to_owned(), remaining: nth.max(1), code });
    }

    pub(super) fn forget_failures(&mut self) {
        self.failures.clear();
    }

    /// Takes the log.
    pub(super) fn take_calls(&mut self) -> Vec<String> {
        self.calls.drain(..).map(|(function, result)| format!("{function} {result}")).collect()
    }

    fn injected(&mut self, function: &str) -> Option<CUresult> {
        let concerned = |failure: &Failure| failure.function == function || failure.function == "*";
        for failure in self.failures.iter_mut().filter(|failure| concerned(failure)) {
            failure.remaining = failure.remaining.saturating_sub(1);
        }
        let at = self.failures.iter().position(|failure| concerned(failure) && failure.remaining == 0)?;
        Some(self.failures.swap_remove(at).code)
    }
}

/// Runs a function of the driver.
pub(super) fn enter(function: &'static str, initialised: bool, inside: impl FnOnce() -> Answer) -> CUresult {
    let refused = {
        let mut book = book();
        let injected = book.injected(function);
        injected.or_else(|| (initialised && !book.initialised).then_some(CUDA_ERROR_NOT_INITIALIZED))
    };
    let result = match refused {
        Some(code) => code,
        None => catch_unwind(AssertUnwindSafe(inside))
            .unwrap_or_else(|panic| Err(report(function, &*panic)))
            .err()
            .unwrap_or(0),
    };
    let mut book = book();
    if book.calls.len() == KEPT_CALLS {
        book.calls.pop_front();
    }
    book.calls.push_back((function, result));
    result
}

fn report(function: &str, panic: &(dyn Any + Send)) -> CUresult {
    let words = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    eprintln!("fake CUDA driver: {function} panicked: {}", words.unwrap_or("?"));
    CUDA_ERROR_UNKNOWN
}

/// Writes a result through a pointer of the caller.
///
/// # Safety
/// The pointer is null or valid for a write, aligned or not.
pub(super) unsafe fn put<T>(pointer: *mut T, value: T) -> Answer {
    if pointer.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, hence valid by the contract.
    unsafe { pointer.write_unaligned(value) };
    Ok(())
}

/// Reads an argument through a pointer of the caller.
///
/// # Safety
/// The pointer is null or valid for a read, aligned or not.
pub(super) unsafe fn get<T: Copy>(pointer: *const T) -> Answer<T> {
    if pointer.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, hence valid by the contract.
    Ok(unsafe { pointer.read_unaligned() })
}

/// Declares functions of the driver. Bodies return [`Answer`]; a compile-time check compares each with the table.
macro_rules! driver_functions {
    ($($(#[$about:meta])* $kind:ident $name:ident = $symbol:literal ($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$about])*
        #[allow(non_snake_case, unused_unsafe)] // the driver's names; some bodies touch no pointer
        #[unsafe(export_name = $symbol)]
        unsafe extern "C" fn $name($($argument: $type),*) -> warpway_cuda_sys::driver_types::CUresult {
            $crate::driver::call::enter(stringify!($name), $crate::driver::call::driver_functions!(@initialised $kind), || {
                // SAFETY: the contract of a C function: pointers are null or point to what the signature says, for the
                // length that the other arguments say. The caller, who writes `unsafe`, answers for it.
                unsafe { $body }
            })
        }
        const _: fn(&mut warpway_cuda_sys::Driver) =
            |table| table.$name = $crate::driver::call::driver_functions!(@field $kind $name);
    )*};
    (@initialised early) => { false };
    (@initialised $kind:ident) => { true };
    (@field optional $name:ident) => { Some($name) };
    (@field $kind:ident $name:ident) => { $name };
}
pub(super) use driver_functions;
