//! What a connection has posted and how far it has come, apart from the stream that does it.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use warpway_core::connection::ConnectionError;
use warpway_core::memory::RegisteredMemory;

/// Positions of one connection. The stream writes a position to host memory when it has come there: a mark. One mark is
/// under way at most, so that asking often costs little.
#[derive(Default)]
pub(super) struct Queue {
    posted: u64,
    /// The position of the last mark given to the stream.
    marked: u64,
    /// Words given to the stream, marks included.
    words: u64,
    kept: VecDeque<(u64, Kept)>,
    failure: Option<ConnectionError>,
    /// Questions since the last mark was given to the stream.
    asked: u64,
}

/// What must live until an operation is done.
#[expect(dead_code, reason = "kept to be dropped")]
pub(super) enum Kept {
    Memories(RegisteredMemory, Option<RegisteredMemory>),
    Other(Arc<dyn Any + Send + Sync>),
}

/// What is to be done after a look at the queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    /// A mark for this position.
    Mark(u64),
    /// A look at the stream: the mark has been awaited for long.
    Ask,
}

/// Questions between two looks at the stream, which cost as much as an operation.
const QUESTIONS: u64 = 64;

impl Queue {
    /// The failure that ended the connection.
    pub(super) fn check(&self) -> Result<(), ConnectionError> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    pub(super) fn fail(&mut self, failure: ConnectionError) {
        self.failure.get_or_insert(failure);
    }

    pub(super) fn posted(&self) -> u64 {
        self.posted
    }

    /// The number of the next word; counted even if it cannot be given to the stream.
    pub(super) fn next_word(&mut self) -> u64 {
        self.words += 1;
        self.words - 1
    }

    /// An operation has been given to the stream.
    pub(super) fn post(&mut self, kept: Kept) -> u64 {
        self.posted += 1;
        self.kept.push_back((self.posted, kept));
        self.posted
    }

    /// Keeps something until `position` is reached.
    pub(super) fn keep(&mut self, position: u64, what: Arc<dyn Any + Send + Sync>) {
        let at = self.kept.partition_point(|(other, _)| *other <= position);
        self.kept.insert(at, (position, Kept::Other(what)));
    }

    /// What need not be kept any more, to be dropped without a lock.
    pub(super) fn release(&mut self, done: u64) -> impl Iterator<Item = (u64, Kept)> + use<> {
        let released = self.kept.partition_point(|(position, _)| *position <= done);
        let left = self.kept.split_off(released);
        std::mem::replace(&mut self.kept, left).into_iter()
    }

    /// True once nothing is kept.
    pub(super) fn keeps_nothing(&self) -> bool {
        self.kept.is_empty()
    }

    /// What somebody has to do who asks how far the stream has come, and finds `done`.
    pub(super) fn ask(&mut self, done: u64) -> Next {
        if done >= self.marked {
            return if self.posted > done { Next::Mark(self.posted) } else { Next::Nothing };
        }
        self.asked += 1;
        if self.asked.is_multiple_of(QUESTIONS) { Next::Ask } else { Next::Nothing }
    }

    /// A mark for `position` has been given to the stream.
    pub(super) fn mark(&mut self, position: u64) {
        self.marked = position;
        self.asked = 0;
    }

    /// Operations behind the last mark.
    pub(super) fn unmarked(&self) -> u64 {
        self.posted - self.marked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Kept {
        Kept::Other(Arc::new(()))
    }

    #[test]
    fn one_mark_is_under_way_at_a_time() {
        let mut queue = Queue::default();
        assert_eq!(queue.ask(0), Next::Nothing);
        (1..=3).for_each(|position| assert_eq!(queue.post(nothing()), position));
        assert_eq!(queue.ask(0), Next::Mark(3));
        queue.mark(3);
        queue.post(nothing());
        for asked in 1..=2 * QUESTIONS {
            let expected = if asked % QUESTIONS == 0 { Next::Ask } else { Next::Nothing };
            assert_eq!(queue.ask(0), expected, "{asked}");
        }
        assert_eq!((queue.unmarked(), queue.ask(3)), (1, Next::Mark(4)));
        queue.mark(4);
        assert_eq!(queue.ask(4), Next::Nothing);
    }

    #[test]
    fn what_is_kept_goes_with_its_position() {
        let mut queue = Queue::default();
        let lease: Arc<dyn Any + Send + Sync> = Arc::new(());
        for position in 1..=4 {
            assert_eq!(queue.post(nothing()), position);
        }
        queue.keep(2, Arc::clone(&lease));
        assert_eq!(queue.release(1).map(|(position, _)| position).collect::<Vec<_>>(), [1]);
        assert_eq!(Arc::strong_count(&lease), 2);
        assert_eq!(queue.release(2).map(|(position, _)| position).collect::<Vec<_>>(), [2, 2]);
        assert_eq!(Arc::strong_count(&lease), 1);
        assert_eq!(queue.release(9).count(), 2);
        assert_eq!(queue.release(9).count(), 0);
    }
}
