//! Order, completion and failure of one connection.

use std::sync::atomic::AtomicBool;

use fake_cuda::Fake;
use warpway_core::config::{Config, Environment};
use warpway_core::memory::{Region, RegisteredMemory};

use super::*;
use crate::capture::leave_captures_alone;
use crate::driver::Driver;
use crate::engine::Devices;
use crate::engine::tests::{IMAGE, devices, imported, local, machine, patience, pattern, read, word, write};
use crate::jit::Compiler;
use crate::memory::DeviceMemory;
use crate::module::{LaunchShape, Module};

/// A connection from device 0 to memory of device 1.
struct Link {
    connection: CudaConnection,
    shared: Arc<Shared>,
    health: Arc<Health>,
    there: RegisteredMemory,
    source: RegisteredMemory,
    /// Held shut by a kernel on the connection's stream until it is opened.
    gate: PinnedMemory,
    stream: Stream,
}

const SIZE: u64 = 8192;

impl Link {
    fn new(machine: &Devices, words: WordForm, queue: i32) -> Self {
        let shared = machine.shared(0).unwrap();
        let context = &shared.context;
        let memory = DeviceMemory::allocate(&machine.context(1).unwrap(), SIZE, &[context]).unwrap();
        let source = DeviceMemory::allocate(context, SIZE, &[]).unwrap();
        let stream = Stream::new(context).unwrap();
        write(&stream, memory.address(), &vec![0; SIZE as usize]);
        write(&stream, source.address(), &pattern(1, SIZE));
        let health = Arc::new(Health::new(0));
        let connection = CudaConnection::new(&shared, words, 1, Arc::clone(&health), queue).unwrap();
        let gate = PinnedMemory::allocate(context, 8).unwrap();
        let (there, source) = (imported(memory.region().unwrap()), local(source.region().unwrap()));
        Self { connection, shared, health, there, source, gate, stream }
    }

    fn span<'a>(memory: &'a RegisteredMemory, offset: u64) -> Span<'a> {
        Span { memory, offset }
    }

    fn write(&self, to: u64, from: u64, size: u64) -> Result<Position> {
        self.connection.write(Self::span(&self.there, to), Self::span(&self.source, from), size)
    }

    fn store(&self, at: u64, value: u64) -> Result<Position> {
        self.connection.store(Self::span(&self.there, at), value)
    }

    fn add(&self, at: u64, delta: i64) -> Result<Position> {
        self.connection.add(Self::span(&self.there, at), delta)
    }

    fn raise(&self, at: u64, value: u64) -> Result<Position> {
        self.connection.raise(Self::span(&self.there, at), value)
    }

    /// A put with its signal: the first bytes of the source, and a word behind them.
    fn put_and_raise(&self, size: u64, value: u64) -> Result<Position> {
        let (destination, source) = (Self::span(&self.there, 0), Self::span(&self.source, 0));
        self.connection.write_and_raise(Put { destination, source, size }, Self::span(&self.there, 64), value)
    }

    fn flush(&self) {
        self.connection.flush(self.connection.posted(), patience()).unwrap();
    }

    fn word(&self, at: u64) -> u64 {
        word(&self.stream, self.there.address("test", at, 8).unwrap())
    }

    /// From now on the stream waits.
    fn shut(&self) {
        let module = Module::load(&self.shared.context, IMAGE).unwrap();
        let kernel = module.kernel("wait_u64").unwrap();
        let arguments = (self.gate.address(), 1u64, 30_000u64);
        let stream = &self.connection.line().unwrap().stream;
        // SAFETY: the kernel's parameters; the gate lives until the stream is done.
        unsafe { kernel.launch(stream, LaunchShape::new(1, 1), &arguments).unwrap() };
    }

    fn open(&self) {
        // SAFETY: an aligned word that only the kernel looks at.
        unsafe { AtomicU64::from_ptr(self.gate.host().cast().as_ptr()) }.store(1, Ordering::Release);
    }

    fn trap(&self) {
        let module = Module::load(&self.shared.context, IMAGE).unwrap();
        let stream = &self.connection.line().unwrap().stream;
        // SAFETY: it has no parameters.
        unsafe { module.kernel("trap").unwrap().launch(stream, LaunchShape::new(1, 1), &()).unwrap() };
    }
}

#[test]
fn operations_take_effect_in_the_order_of_their_positions() {
    let fake = Fake::open();
    for words in [WordForm::Stream, WordForm::Copy] {
        let devices = devices(&fake);
        let link = Link::new(&devices, words, -1);
        link.shut();
        let posted = [
            link.write(64, 0, 1003).unwrap(),
            link.store(0, 5).unwrap(),
            link.add(0, -7).unwrap(),
            link.write(100, 4000, 1).unwrap(),
            link.raise(8, 1).unwrap(),
            link.raise(8, 2).unwrap(),
            link.write(200, 0, 0).unwrap(),
        ];
        assert_eq!(posted, [1, 2, 3, 4, 5, 6, 7].map(Position));
        assert_eq!(link.connection.completed().unwrap(), Position(0));
        assert_eq!((link.word(0), link.word(8)), (0, 0));
        link.open();
        link.flush();
        assert_eq!(link.connection.completed().unwrap(), Position(7));
        let mut expected = vec![0; SIZE as usize];
        expected[64..64 + 1003].copy_from_slice(&pattern(1, SIZE)[..1003]);
        expected[100] = pattern(1, SIZE)[4000];
        expected[..8].copy_from_slice(&(-2i64).to_le_bytes());
        expected[8] = 2;
        let address = link.there.address("test", 0, 1).unwrap();
        assert!(read(&link.stream, address, SIZE as usize) == expected);
        drop((link, devices));
        assert_eq!(fake.live().total(), 0, "{:?}", fake.live());
    }
}

#[test]
fn a_driver_that_does_not_write_words_copies_them() {
    let (fake, devices) = machine("devices=2,words=no");
    let link = Link::new(&devices, WordForm::Stream, 3);
    for value in 1..=100 {
        link.store(8 * (value % 5), value).unwrap();
    }
    link.flush();
    assert_eq!([0, 1, 2, 3, 4].map(|at| link.word(8 * at)), [100, 96, 97, 98, 99]);
    assert!(!fake.calls().iter().any(|call| call.starts_with("cuStreamWriteValue64")));
}

#[test]
fn a_burst_is_marked_once() {
    let (fake, devices) = machine("devices=2");
    let link = Link::new(&devices, WordForm::Stream, -1);
    link.shut();
    fake.calls();
    for _ in 0..200 {
        link.write(0, 0, 8).unwrap();
        link.connection.completed().unwrap();
    }
    link.open();
    link.flush();
    let marks = fake.calls().iter().filter(|call| call.starts_with("cuStreamWriteValue64")).count();
    assert_eq!(marks, 2, "the first operation, and all others together");
}

/// On the thread of a proxy a put with its signal is three calls: each one more delays whoever waits for the signal.
#[test]
fn a_put_and_its_signal_are_one_way_into_the_driver() {
    let (fake, devices) = machine("devices=2");
    let link = Link::new(&devices, WordForm::Stream, -1);
    let calls = || fake.calls().iter().map(|call| call.replace(" 0", "")).collect::<Vec<_>>();
    calls();
    assert_eq!(link.put_and_raise(8, 1).unwrap(), Position(2));
    let (mode, operations) = ("cuThreadExchangeStreamCaptureMode", ["cuMemcpyAsync", "cuStreamWriteValue64"]);
    let enter = ["cuCtxGetCurrent", "cuCtxPushCurrent"];
    let guarded = [&[mode], &enter[..], &operations, &["cuCtxPopCurrent", mode]].concat();
    assert_eq!(calls(), guarded, "a thread of somebody else's");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let context = &link.shared.context;
            leave_captures_alone(context.driver());
            let _entered = context.enter().unwrap();
            calls();
            for round in 2..=100 {
                assert_eq!(link.put_and_raise(8, round).unwrap(), Position(2 * round));
                assert_eq!(calls(), [&enter[..1], &operations].concat(), "round {round}");
            }
        });
    });
    link.flush();
    assert_eq!((link.word(0), link.word(64)), (u64::from_le_bytes(pattern(1, 8).try_into().unwrap()), 100));
}

/// The capture mode of a thread is one driver's; another driver on the same thread is asked as before.
#[test]
fn captures_are_left_alone_per_driver_and_thread() {
    let (fake, devices) = machine("devices=2");
    let link = Link::new(&devices, WordForm::Stream, -1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            leave_captures_alone(&Driver::open(fake.path()).unwrap());
            fake.calls();
            link.put_and_raise(8, 1).unwrap();
            let asked = fake.calls().iter().filter(|call| call.starts_with("cuThreadExchange")).count();
            assert_eq!(asked, 2);
        });
    });
    link.flush();
}

#[test]
fn a_put_and_its_signal_where_there_is_room_for_one() {
    let (_fake, devices) = machine("devices=2");
    for queue in 1..=3 {
        let link = Link::new(&devices, WordForm::Stream, queue);
        for round in 1..=20 {
            assert_eq!(link.put_and_raise(64, round).unwrap(), Position(2 * round));
        }
        link.flush();
        assert_eq!(link.word(64), 20, "a queue of {queue}");
    }
}

/// What the driver has taken of a put with its signal is kept until it is done, also if it refuses the signal.
#[test]
fn a_signal_that_fails_behind_its_put() {
    let (fake, devices) = machine("devices=2");
    let link = Link::new(&devices, WordForm::Stream, -1);
    link.shut();
    fake.fail("cuStreamWriteValue64", 1, 1);
    let error = link.put_and_raise(8, 1).unwrap_err();
    assert_eq!(error.id(), "conn.broken");
    assert!(error.to_string().contains("cuStreamWriteValue64"), "{error}");
    assert_eq!(link.put_and_raise(8, 1).unwrap_err().id(), "conn.broken");
    assert_eq!(
        (link.connection.posted(), lock(&link.connection.queue).keeps_nothing()),
        (Position(1), false)
    );
    link.open();
}

/// A signal that is on its way, though its sender has been told otherwise, is not sent once more.
#[test]
fn nothing_follows_what_is_posted_with_an_error() {
    let (fake, devices) = machine("devices=2");
    // One in flight: each is marked at once.
    let link = Link::new(&devices, WordForm::Stream, 1);
    link.raise(8, 1).unwrap();
    link.flush();
    fake.calls();
    link.raise(8, 2).unwrap();
    link.flush();
    let calls = fake.calls();
    let written = calls.iter().position(|call| call == "cuStreamWriteValue64 0").unwrap();
    let before = calls[..written].iter().filter(|call| call.starts_with("cuCtxGetCurrent ")).count() as u64;
    fake.fail("cuCtxGetCurrent", before + 1, 201);
    let error = link.raise(8, 3).unwrap_err();
    assert!(error.to_string().contains("cuCtxGetCurrent"), "{error}");
    assert_eq!(link.raise(8, 3).unwrap_err().id(), "conn.broken");
    link.shared.context.enter().unwrap();
    link.connection.line().unwrap().stream.synchronize(patience()).unwrap();
    assert_eq!(link.word(8), 3, "it had been given to the stream");
}

/// A proxy asks before each part of a request; a mark between a put and its signal would delay the signal.
#[test]
fn asking_how_many_are_in_flight_marks_only_where_they_are_many() {
    let (fake, devices) = machine("devices=2");
    let link = Link::new(&devices, WordForm::Stream, -1);
    link.shut();
    fake.calls();
    let marks = || fake.calls().iter().filter(|call| call.starts_with("cuStreamWriteValue64")).count();
    for posted in 1..=QUEUE / 2 {
        link.write(0, 0, 8).unwrap();
        assert_eq!(link.connection.in_flight().unwrap(), posted);
    }
    assert_eq!(marks(), 0);
    link.write(0, 0, 8).unwrap();
    assert_eq!((link.connection.in_flight().unwrap(), marks()), (QUEUE / 2 + 1, 1));
    link.write(0, 0, 8).unwrap();
    assert_eq!((link.connection.in_flight().unwrap(), marks()), (QUEUE / 2 + 2, 0), "one is under way");
    link.open();
    link.flush();
    assert_eq!(link.connection.in_flight().unwrap(), 0);
}

#[test]
fn nobody_need_ask_for_what_is_kept_to_be_given_up() {
    let (fake, devices) = machine("devices=2");
    let link = Link::new(&devices, WordForm::Stream, 8);
    let before = fake.live().mappings;
    let buffer = DeviceMemory::allocate(&link.shared.context, 4096, &[]).unwrap();
    let gone = local(buffer.region().unwrap());
    let lease: Arc<dyn Any + Send + Sync> = Arc::new(());
    let position = link.connection.write(Link::span(&link.there, 0), Link::span(&gone, 0), 64).unwrap();
    link.connection.keep(position, &lease);
    drop((buffer, gone));
    for _ in 0..100 {
        link.write(0, 0, 8).unwrap();
    }
    assert_eq!(fake.live().mappings, before);
    assert_eq!(Arc::strong_count(&lease), 1);
}

/// Whoever has nothing else to do asks: what finished operations have used goes, and nothing is asked after that.
#[test]
fn what_is_done_is_let_go_of() {
    let (fake, devices) = machine("devices=2");
    let link = Link::new(&devices, WordForm::Stream, -1);
    assert!(link.connection.let_go().unwrap(), "nothing was posted");
    let before = fake.live().mappings;
    let buffer = DeviceMemory::allocate(&link.shared.context, 4096, &[]).unwrap();
    let gone = local(buffer.region().unwrap());
    link.shut();
    link.connection.write(Link::span(&link.there, 0), Link::span(&gone, 0), 64).unwrap();
    drop((buffer, gone));
    assert!(!link.connection.let_go().unwrap());
    assert_eq!(fake.live().mappings, before + 1, "it is used");
    link.open();
    let give_up = patience();
    while !link.connection.let_go().unwrap() {
        assert!(!give_up.expired());
    }
    assert_eq!(fake.live().mappings, before);
    fake.calls();
    assert!(link.connection.let_go().unwrap());
    assert_eq!(fake.calls(), [""; 0]);
}

#[test]
fn memory_stays_while_copies_use_it_and_a_flush_gives_up_in_time() {
    let (fake, devices) = machine("devices=2");
    let link = Link::new(&devices, WordForm::Stream, -1);
    let before = fake.live().mappings;
    let buffer = DeviceMemory::allocate(&link.shared.context, 4096, &[]).unwrap();
    write(&link.stream, buffer.address(), &pattern(7, 4096));
    let source = local(buffer.region().unwrap());
    let lease: Arc<dyn Any + Send + Sync> = Arc::new(());
    link.shut();
    let position = link.connection.write(Link::span(&link.there, 0), Link::span(&source, 0), 4096).unwrap();
    link.connection.keep(position, &lease);
    drop((buffer, source));
    let error = link.connection.flush(position, Deadline::after(Duration::from_millis(20))).unwrap_err();
    assert_eq!((error.id(), error.peer()), ("conn.flush_timeout", Some(1)));
    assert!(error.to_string().contains("position 0 of 1"), "{error}");
    assert_eq!((fake.live().mappings, Arc::strong_count(&lease)), (before + 1, 2));
    link.open();
    link.flush();
    assert_eq!((fake.live().mappings, Arc::strong_count(&lease)), (before, 1));
    let address = link.there.address("test", 0, 1).unwrap();
    assert!(read(&link.stream, address, 4096) == pattern(7, 4096));
    // Done already: nothing is kept.
    link.connection.keep(position, &lease);
    assert_eq!(Arc::strong_count(&lease), 1);
    let beyond = link.connection.flush(Position(2), patience()).unwrap_err();
    assert_eq!(beyond.id(), "internal");
}

#[test]
fn a_full_queue_waits_for_the_stream_or_for_the_communicators_end() {
    let (_fake, devices) = machine("devices=2");
    let link = Link::new(&devices, WordForm::Stream, 4);
    assert_eq!(link.connection.max_write_queue_size(), 4);
    link.shut();
    for value in 1..=4 {
        link.store(0, value).unwrap();
    }
    let entered = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let fifth = scope.spawn(|| {
            entered.store(true, Ordering::SeqCst);
            link.store(0, 5)
        });
        while !entered.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        assert!(!fifth.is_finished() || link.connection.posted() == Position(4));
        link.open();
        assert_eq!(fifth.join().unwrap().unwrap(), Position(5));
    });
    link.flush();
    assert_eq!(link.word(0), 5);

    let other = Link::new(&devices, WordForm::Stream, 4);
    other.shut();
    for value in 0..4 {
        other.store(0, value).unwrap();
    }
    other.health.abort("enough");
    assert_eq!(other.store(0, 9).unwrap_err().id(), "aborted");
    other.open();
}

#[test]
fn a_stream_that_fails_ends_the_connection_by_name() {
    let (fake, devices) = machine("devices=2");
    let link = Link::new(&devices, WordForm::Stream, -1);
    link.shut();
    let position = link.write(0, 0, 64).unwrap();
    link.trap();
    link.store(0, 1).unwrap();
    link.open();
    let error = match link.connection.flush(Position(2), patience()) {
        Err(error) => error,
        Ok(()) => panic!("position {position:?} was marked before, 2 cannot be"),
    };
    for error in [error, link.store(0, 2).unwrap_err(), link.connection.completed().map(drop).unwrap_err()] {
        assert_eq!((error.id(), error.peer()), ("conn.broken", Some(1)));
        assert!(error.to_string().contains("CUDA_ERROR_LAUNCH_FAILED"), "{error}");
    }
    drop((link, devices));
    assert_eq!(fake.live().total() - fake.live().abandoned, 0, "{:?}", fake.live());
}

#[test]
fn threads_that_post_at_once_get_positions_of_their_own() {
    let (_fake, devices) = machine("devices=2");
    let link = Link::new(&devices, WordForm::Stream, 16);
    let mut positions: Vec<u64> = std::thread::scope(|scope| {
        let post = |_| {
            let link = &link;
            scope.spawn(move || (0..100).map(|_| link.add(0, 3).unwrap().0).collect::<Vec<_>>())
        };
        let threads: Vec<_> = (0..4).map(post).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    link.flush();
    positions.sort_unstable();
    assert_eq!(positions, (1..=400).collect::<Vec<_>>());
    assert_eq!(link.word(0), 1200);
}

#[test]
fn what_cannot_be_copied_is_refused_without_harm() {
    let (_fake, devices) = machine("devices=2");
    let link = Link::new(&devices, WordForm::Stream, -1);
    let error =
        link.connection.write(Link::span(&link.there, 0), Link::span(&link.there, 63), 64).unwrap_err();
    assert_eq!((error.id(), error.peer()), ("conn.refused", Some(1)));
    link.connection.write(Link::span(&link.there, 0), Link::span(&link.there, 64), 64).unwrap();
    // Host memory, as it is: read before the call returns.
    let mut bytes = pattern(4, 500);
    let address = std::ptr::NonNull::new(bytes.as_mut_ptr()).unwrap();
    // SAFETY: the bytes outlive the region.
    let host =
        unsafe { Region::new(address, 500, warpway_core::transport::Device::CPU, None, None) }.unwrap();
    link.connection.write(Link::span(&link.there, 128), Link::span(&local(host), 100), 400).unwrap();
    link.flush();
    let address = link.there.address("test", 128, 1).unwrap();
    assert_eq!(read(&link.stream, address, 400), &bytes[100..]);
}

/// The thread that captures is another one, in the mode that forbids most calls everywhere in the process.
#[test]
fn somebodys_capture_neither_stops_the_connection_nor_is_ended_by_it() {
    use warpway_cuda_sys::driver_types::{CU_STREAM_CAPTURE_MODE_GLOBAL, CUgraph};
    let (fake, devices) = machine("devices=2");
    let link = Link::new(&devices, WordForm::Stream, -1);
    let captured = Stream::new(&link.shared.context).unwrap();
    let table = fake.driver();
    // SAFETY: a live stream.
    assert_eq!(unsafe { (table.cuStreamBeginCapture)(captured.raw(), CU_STREAM_CAPTURE_MODE_GLOBAL) }, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            link.write(0, 0, 64).unwrap();
            link.add(64, 1).unwrap();
            link.store(72, 2).unwrap();
            // Until it has looked at the stream, too.
            for _ in 0..200 {
                link.connection.completed().unwrap();
            }
            link.flush();
        });
    });
    let mut graph: CUgraph = std::ptr::null_mut();
    // SAFETY: the capture was begun above.
    let ended = unsafe { (table.cuStreamEndCapture)(captured.raw(), &raw mut graph) };
    assert_eq!((ended, graph.is_null()), (0, false));
    // SAFETY: nobody else has it.
    unsafe { (table.cuGraphDestroy)(graph) };
    assert_eq!((link.word(64), link.word(72)), (1, 2));
}

#[test]
fn without_a_compiler_an_addition_fails_and_the_connection_goes_on() {
    let fake = Fake::open();
    fake.set("devices=2");
    let mut nowhere = Config::default();
    nowhere.nvrtc = Some("/nowhere/libnvrtc.so".into());
    let compiler = Compiler::new(&nowhere, &Environment::default());
    let link = Link::new(&Devices::new(fake.path(), compiler), WordForm::Stream, -1);
    for _ in 0..2 {
        assert_eq!(link.connection.prepare_add().unwrap_err().id(), "unavailable");
        assert_eq!(link.add(64, 1).unwrap_err().id(), "unavailable");
    }
    link.store(72, 2).unwrap();
    link.flush();
    assert_eq!((link.word(64), link.word(72)), (0, 2));
}
