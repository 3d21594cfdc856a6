//! What is alive in the driver, for tests of leaks.

/// What is alive, as `fake_cuda_live` writes it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Live {
    /// Contexts that are retained.
    pub contexts: u64,
    /// Allocations of cuMemAlloc.
    pub allocations: u64,
    /// Handles of cuMemCreate and imports, counted as often as they must be released.
    pub handles: u64,
    /// Address ranges of cuMemAddressReserve.
    pub reservations: u64,
    /// Mappings of cuMemMap.
    pub mappings: u64,
    /// Opens of cuIpcOpenMemHandle, counted as often as they must be closed.
    pub opened: u64,
    /// Allocations of cuMemHostAlloc.
    pub pinned: u64,
    /// Registrations of cuMemHostRegister.
    pub registered: u64,
    /// Streams that a program has made.
    pub streams: u64,
    /// Events.
    pub events: u64,
    /// Modules.
    pub modules: u64,
    /// Graphs.
    pub graphs: u64,
    /// Executable graphs.
    pub executables: u64,
    /// Objects that died with their context, since the library was loaded. They were leaks, too.
    pub abandoned: u64,
}

impl Live {
    /// The sum, abandoned objects included: 0 if everything was given back.
    pub fn total(&self) -> u64 {
        let memory = self.allocations + self.handles + self.reservations + self.mappings + self.opened;
        let host = self.pinned + self.registered;
        let work = self.streams + self.events + self.modules + self.graphs + self.executables;
        self.contexts + memory + host + work + self.abandoned
    }
}
