//! What lives until kernels have ended that may use it, whoever drops it before.
//!
//! Freeing memory waits for the device in some of the driver's calls (`cuMemFree`), and takes pages from under running
//! kernels in others (`cuMemUnmap`). Neither is wanted when a function returns early with an error and its buffers go while
//! launches are queued: so what is dropped then is given back when those launches have ended. The launches of all devices of
//! the process count, since kernels of one write to memory of another.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::context::{Context, lock};

/// Launches of one source, which end in their order.
pub(crate) trait Launches: Send + Sync {
    /// Looks which have ended, and lets go of what they have used. Does not wait.
    fn look(&self);

    /// How far they have come.
    fn progress(&self) -> &Arc<Progress>;
}

/// Launches by number, from 1.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// The launches of a process, and what waits for their end.
#[derive(Default)]
pub(crate) struct InFlight(Mutex<State>);

#[derive(Default)]
struct State {
    sources: Vec<Weak<dyn Launches>>,
    retired: Vec<Retired>,
}

struct Retired {
    /// The launches that may use it.
    until: Vec<(Arc<Progress>, u64)>,
    _what: Arc<dyn Send + Sync>,
}

/// A value that is dropped after the launches that were under way when this was.
pub(crate) struct Lasting<T: Send + Sync + 'static> {
    context: Context,
    value: Arc<T>,
}

impl Progress {
    /// The next launch. Called before it is made, so that nothing slips through between the two.
    pub(crate) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The launch begun last was refused.
    pub(crate) fn take_back(&self) {
        self.begun.fetch_sub(1, Ordering::SeqCst);
    }

    /// The launches up to `number` have ended.
    pub(crate) fn end(&self, number: u64) {
        // Release: what the launches have done comes before what is done with the memory afterwards.
        self.ended.fetch_max(number, Ordering::Release);
    }

    /// There will be no more launches, and all have ended.
    pub(crate) fn finish(&self) {
        self.end(u64::MAX);
    }

    fn reached(&self, number: u64) -> bool {
        self.ended.load(Ordering::Acquire) >= number
    }
}

impl InFlight {
    /// Launches to be asked for, as long as they live.
    pub(crate) fn watch(&self, source: Weak<dyn Launches>) {
        let mut state = lock(&self.0);
        state.sources.retain(|known| known.strong_count() > 0);
        state.sources.push(source);
    }

    /// Drops `what`, at once if no launch is under way.
    fn retire(&self, what: Arc<dyn Send + Sync>) {
        let until: Vec<_> = self.sources().iter().filter_map(|source| under_way(&**source)).collect();
        if !until.is_empty() {
            lock(&self.0).retired.push(Retired { until, _what: what });
            // They may have ended in between, and nobody look again.
            self.release();
        }
    }

    /// Drops what no launch uses any more.
    pub(crate) fn release(&self) {
        if lock(&self.0).retired.is_empty() {
            return;
        }
        self.sources().iter().for_each(|source| source.look());
        let ended = |retired: &mut Retired| retired.until.iter().all(|(line, number)| line.reached(*number));
        // Dropped without the lock: the driver may take its time.
        let released: Vec<Retired> = lock(&self.0).retired.extract_if(.., ended).collect();
        drop(released);
    }

    fn sources(&self) -> Vec<Arc<dyn Launches>> {
        lock(&self.0).sources.iter().filter_map(Weak::upgrade).collect()
    }
}

/// The last launch of a source, unless it has ended.
fn under_way(source: &dyn Launches) -> Option<(Arc<Progress>, u64)> {
    let progress = source.progress();
    let last = progress.begun.load(Ordering::SeqCst);
    if progress.reached(last) {
        return None;
    }
    source.look();
    (!progress.reached(last)).then(|| (Arc::clone(progress), last))
}

impl<T: Send + Sync + 'static> Lasting<T> {
    pub(crate) fn new(context: &Context, value: T) -> Self {
        Self::sharing(context, Arc::new(value))
    }

    pub(crate) fn sharing(context: &Context, value: Arc<T>) -> Self {
        Self { context: context.clone(), value }
    }

    /// The value, which others may bring back until it is dropped.
    pub(crate) fn shared(&self) -> &Arc<T> {
        &self.value
    }
}

impl<T: Send + Sync + 'static> Deref for Lasting<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Send + Sync + 'static> Drop for Lasting<T> {
    fn drop(&mut self) {
        self.context.driver().in_flight().retire(Arc::clone(&self.value) as Arc<dyn Send + Sync>);
    }
}

impl<T: fmt::Debug + Send + Sync + 'static> fmt::Debug for Lasting<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
