use super::*;

fn request(operation: Operation, key: u64) -> Request {
    // Every field follows from the key, so that a torn line shows.
    let peer = (!key.is_multiple_of(3)).then_some((key % 1_000_003) as u32);
    Request { operation, peer, object: key, bytes: !key, offset: key.wrapping_mul(17) }
}

fn assert_whole(line: &RecordedOperation) {
    let expected = request(line.operation, line.object);
    assert_eq!(
        (line.peer, line.bytes, line.offset),
        (expected.peer, expected.bytes, expected.offset),
        "torn line {line:?}"
    );
}

#[cfg(not(loom))]
mod threads {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

    #[test]
    fn keeps_exactly_the_last_lines() {
        for capacity in [1, 3, 17, 256] {
            for count in [0, 1, capacity - 1, capacity, capacity + 1, 4095] {
                let recorder = FlightRecorder::new(capacity);
                for key in 0..count as u64 {
                    let id = recorder.start(request(Operation::Write, key));
                    if key % 2 == 0 {
                        recorder.complete(id);
                    }
                }
                let lines = recorder.snapshot();
                let expected: Vec<u64> = (count.saturating_sub(capacity) as u64..count as u64).collect();
                assert_eq!(lines.iter().map(|line| line.sequence).collect::<Vec<_>>(), expected);
                assert_eq!((recorder.recorded(), recorder.unrecorded()), (count as u64, 0));
                for line in &lines {
                    assert_eq!(line.object, line.sequence);
                    assert_whole(line);
                    let completed = line.sequence % 2 == 0;
                    assert_eq!(line.state == OperationState::Completed, completed);
                    assert_eq!(line.ended_ns >= line.started_ns, completed);
                }
            }
        }
    }

    #[test]
    fn extreme_fields_and_capacities() {
        let recorder = FlightRecorder::new(0);
        assert_eq!(recorder.capacity(), 1);
        for peer in [None, Some(0), Some(u32::MAX)] {
            let (object, bytes, offset) = (u64::MAX, u64::MAX - 1, 1 << 63);
            recorder.start(Request { operation: Operation::Launch, peer, object, bytes, offset });
            let line = recorder.snapshot().remove(0);
            assert_eq!((line.operation, line.peer), (Operation::Launch, peer));
            assert_eq!((line.object, line.bytes, line.offset), (object, bytes, offset));
            assert_eq!((line.state, line.ended_ns), (OperationState::Started, 0));
        }
    }

    #[test]
    fn ends_count_once_and_never_hit_a_newer_line() {
        let recorder = FlightRecorder::new(2);
        let first = recorder.start(request(Operation::Put, 0));
        recorder.fail(first, &"broken");
        recorder.complete(first);
        assert_eq!(recorder.snapshot()[0].state, OperationState::Failed("broken".into()));
        let stale = recorder.start(request(Operation::Put, 1));
        for key in 2..4 {
            recorder.start(request(Operation::Get, key));
        }
        recorder.fail(stale, &"too late");
        recorder.complete(first);
        for line in recorder.snapshot() {
            assert_eq!((line.operation, line.state), (Operation::Get, OperationState::Started));
        }
    }

    #[test]
    fn texts_of_errors_are_bounded_and_go_with_their_lines() {
        let recorder = FlightRecorder::new(3);
        for key in 0..1000 {
            let id = recorder.start(request(Operation::Flush, key));
            recorder.fail(id, &format!("{key} {}", "é".repeat(4095)));
        }
        assert!(lock(&recorder.errors).len() <= 4, "texts pile up");
        for line in recorder.snapshot() {
            let OperationState::Failed(text) = line.state else { panic!("{line:?}") };
            assert!(text.starts_with(&format!("{} é", line.sequence)) && text.ends_with("é…"), "{text}");
            assert!(text.len() <= MAX_ERROR_BYTES + 3);
        }
    }

    #[test]
    fn times_are_ordered_and_real() {
        let recorder = FlightRecorder::new(4);
        let id = recorder.start(request(Operation::Wait, 1));
        std::thread::sleep(Duration::from_millis(20));
        recorder.complete(id);
        std::thread::sleep(Duration::from_millis(20));
        let line = recorder.snapshot().remove(0);
        let now = recorder.nanoseconds_at(Instant::now());
        // The scale is exact to well under a millisecond over this length.
        assert!(line.ended_ns - line.started_ns >= 19_000_000, "{line:?}");
        assert!(line.ended_ns + 19_000_000 <= now, "{line:?} at {now}");
    }

    /// Four writers and a reader on a ring so small that laps are common.
    #[test]
    fn concurrent_writers_never_tear_lines() {
        let recorder = FlightRecorder::new(3);
        let stop = AtomicBool::new(false);
        let mut seen = 0u64;
        std::thread::scope(|scope| {
            for writer in 0..4u64 {
                let (recorder, stop) = (&recorder, &stop);
                scope.spawn(move || {
                    for index in 0u64.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let key = writer << 32 | index;
                        let id = recorder.start(request(operation(key), key));
                        if index % 64 == 0 {
                            recorder.fail(id, &key);
                        } else {
                            recorder.complete(id);
                        }
                    }
                });
            }
            let end = Instant::now() + Duration::from_secs(60);
            while seen < 20_000 && Instant::now() < end {
                for line in recorder.snapshot() {
                    let expected = request(operation(line.object), line.object);
                    let found = (line.operation, line.peer, line.bytes, line.offset);
                    // Stopping first, so that a failure does not leave the writers running.
                    let whole = found == (expected.operation, expected.peer, expected.bytes, expected.offset);
                    let text = match &line.state {
                        OperationState::Failed(text) => text.clone(),
                        _ => String::new(),
                    };
                    if !whole || !(text.is_empty() || text == line.object.to_string()) {
                        stop.store(true, Ordering::Relaxed);
                        panic!("torn line {line:?}");
                    }
                    seen += 1;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(seen >= 20_000, "only {seen} lines could be read");
        let lines = recorder.snapshot();
        assert!(lines.len() as u64 + recorder.unrecorded() >= 3, "{lines:?}");
        lines.iter().for_each(assert_whole);
    }

    fn operation(key: u64) -> Operation {
        Operation::ALL[(key % Operation::ALL.len() as u64) as usize]
    }
}

#[cfg(loom)]
mod loom_models {
    use loom::sync::Arc;

    use super::*;

    /// Two writers share one line; a reader looks once. No line is torn, nobody ends a stranger's.
    #[test]
    fn two_writers_one_line() {
        let mut model = loom::model::Builder::new();
        // Three forced switches reach every pairing of the steps; without a bound it takes minutes.
        model.preemption_bound = Some(3);
        model.check(|| {
            let recorder = Arc::new(FlightRecorder::new(1));
            let other = Arc::clone(&recorder);
            let writer = loom::thread::spawn(move || {
                let id = other.start(request(Operation::Put, 1));
                other.complete(id);
            });
            recorder.start(request(Operation::Get, 2));
            for line in recorder.snapshot() {
                assert_whole(&line);
                assert_eq!(line.operation == Operation::Get, line.object == 2);
                assert!(line.object == 1 || line.state == OperationState::Started, "{line:?}");
            }
            writer.join().unwrap();
        });
    }
}
