//! The floating-point environment of the thread: nearest even, subnormal numbers kept.
//!
//! Programs that use a rank may have set "flush to zero" (frameworks offer it as a switch), and threads
//! inherit it from their creator. Rust assumes the default; so do the promised bits.

/// Restores on drop what the thread had before.
pub(super) struct DefaultEnvironment {
    #[cfg(target_arch = "x86_64")]
    previous: Option<u32>,
    #[cfg(target_arch = "aarch64")]
    previous: Option<u64>,
}

/// Everything but the six sticky flags of exceptions that have happened.
#[cfg(target_arch = "x86_64")]
const CONTROL: u32 = !0x3f;
/// Nearest even, no flushing, no traps.
#[cfg(target_arch = "x86_64")]
const DEFAULT: u32 = 0x1f80;

#[cfg(target_arch = "x86_64")]
impl DefaultEnvironment {
    /// Sets the default if the thread has another environment.
    #[inline]
    pub(super) fn enter() -> Self {
        let found = read();
        if found & CONTROL == DEFAULT {
            return Self { previous: None };
        }
        write(DEFAULT);
        Self { previous: Some(found) }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) fn read() -> u32 {
    let mut value = 0u32;
    // SAFETY: writes the register to the four bytes of a local.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut value, options(nostack, preserves_flags)) };
    value
}

/// The compiler may not move memory accesses across this, hence no arithmetic on what is loaded or stored.
#[cfg(target_arch = "x86_64")]
pub(super) fn write(value: u32) {
    // SAFETY: the values written are the default of the language, and what the thread had before; neither
    // has a reserved bit set.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const value, options(nostack, preserves_flags)) };
}

#[cfg(target_arch = "aarch64")]
impl DefaultEnvironment {
    /// Sets the default if the thread has another environment.
    #[inline]
    pub(super) fn enter() -> Self {
        let found = read();
        if found == 0 {
            return Self { previous: None };
        }
        write(0);
        Self { previous: Some(found) }
    }
}

#[cfg(target_arch = "aarch64")]
pub(super) fn read() -> u64 {
    let value: u64;
    // SAFETY: reads a register that every thread may read.
    unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) value, options(nostack, preserves_flags)) };
    value
}

/// The compiler may not move memory accesses across this, hence no arithmetic on what is loaded or stored.
#[cfg(target_arch = "aarch64")]
pub(super) fn write(value: u64) {
    // SAFETY: the values written are the default of the language, and what the thread had before.
    unsafe { std::arch::asm!("msr fpcr, {}", in(reg) value, options(nostack, preserves_flags)) };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl DefaultEnvironment {
    /// Other processors have no such switch that threads inherit.
    #[inline]
    pub(super) fn enter() -> Self {
        Self {}
    }
}

impl Drop for DefaultEnvironment {
    #[inline]
    fn drop(&mut self) {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if let Some(previous) = self.previous {
            write(previous);
        }
    }
}
