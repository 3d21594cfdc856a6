//! Streams: where work goes, and who waits for whom.

use std::sync::Arc;

use warpway_cuda_sys::driver_types::{
    CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
    CUstream,
};

use super::call::Answer;
use super::state::State;
use super::work::{Queue, Work};

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) device: usize,
    pub(super) queue: Arc<Queue>,
    /// Waits for the legacy stream, and it for this one.
    pub(super) blocking: bool,
    pub(super) capture: Option<u64>,
}

impl Stream {
    pub(super) fn new(device: usize, blocking: bool) -> Self {
        Self { device, queue: Queue::new(device), blocking, capture: None }
    }
}

/// `CU_STREAM_LEGACY`.
const LEGACY: u64 = 1;

impl State {
    /// The number of a stream; 0 is the legacy stream of the current context.
    pub(super) fn stream(&self, stream: CUstream) -> Answer<u64> {
        let number = stream as u64;
        if number <= LEGACY {
            let device = self.current()?;
            return self.contexts.get(&device).map(|context| context.legacy).ok_or(CUDA_ERROR_INVALID_HANDLE);
        }
        let device = self.streams.get(&number).ok_or(CUDA_ERROR_INVALID_HANDLE)?.device;
        self.healthy(device)?;
        Ok(number)
    }

    pub(super) fn is_legacy(&self, stream: u64) -> bool {
        self.contexts.values().any(|context| context.legacy == stream)
    }

    /// Hands work to a stream, or to the graph that it is captured into.
    pub(super) fn submit(&mut self, stream: u64, work: Vec<Work>) -> Answer {
        self.legal(stream)?;
        let target = self.streams.get(&stream).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if let Some(capture) = target.capture {
            let capture = self.captures.get_mut(&capture).ok_or(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?;
            return capture.add(stream, work);
        }
        let mut joins = Vec::new();
        for (number, other) in &self.streams {
            let related = other.device == target.device
                && *number != stream
                && (self.is_legacy(stream) && other.blocking || target.blocking && self.is_legacy(*number));
            let position = other.queue.position();
            if related && !other.queue.reached(position) {
                joins.push(Work::Join(Arc::clone(&other.queue), position));
            }
        }
        target.queue.submit(joins.into_iter().chain(work));
        Ok(())
    }

    /// The legacy stream waits for all blocking ones: impossible while one of them is captured.
    pub(super) fn legal(&mut self, stream: u64) -> Answer {
        if !self.is_legacy(stream) {
            return Ok(());
        }
        let device = self.streams.get(&stream).map(|stream| stream.device);
        let captured =
            |other: &&Stream| Some(other.device) == device && other.blocking && other.capture.is_some();
        match self.streams.values().find(captured).and_then(|other| other.capture) {
            None => Ok(()),
            Some(capture) => {
                self.invalidate(capture);
                Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
            }
        }
    }

    /// Queues and positions that must be reached before a device is idle.
    pub(super) fn outstanding(&self, device: usize) -> Vec<(Arc<Queue>, u64)> {
        let of_device = self.streams.values().filter(|stream| stream.device == device);
        of_device.map(|stream| (Arc::clone(&stream.queue), stream.queue.position())).collect()
    }
}
