//! What a real mesh makes of a peer that is slow at a bad moment: the peer is played byte by byte.

use std::sync::mpsc::channel;

use super::super::link::{Link, Received};
use super::super::message::{Frame, Greeting, Notice, PROTOCOL_VERSION, Role};
use super::super::session::Step;
use super::super::{Bootstrap, InterfaceChoice, JoinOptions, TcpBootstrap};
use super::*;

const LIMIT: Duration = Duration::from_secs(10);

fn soon() -> Deadline {
    Deadline::after(LIMIT)
}

fn plan(name: &str, rank: u32, n_ranks: u32) -> JoinPlan {
    JoinPlan {
        rank,
        n_ranks,
        root: RootLocation::Unix {
            name: format!("warpway-test-mesh-{name}-{}", std::process::id()).into_bytes(),
        },
        secret: JobSecret::derive("test", &[b"mesh"]),
        admission: Admission::Secret,
        root_rank: Some(0),
        interfaces: InterfaceChoice::default(),
    }
}

/// Eight ranks: each dials the ranks 1, 2 and 4 after it while joining, so that some pairs have no link at all.
fn job<T: Send>(name: &str, body: impl Fn(TcpBootstrap) -> T + Sync) -> Vec<T> {
    const RANKS: u32 = 8;
    let join =
        |rank| TcpBootstrap::initialize_plan(&plan(name, rank, RANKS), JoinOptions::from(LIMIT)).unwrap();
    std::thread::scope(|scope| {
        let (body, join) = (&body, &join);
        let ranks: Vec<_> = (0..RANKS).map(|rank| scope.spawn(move || body(join(rank)))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// A link to a mesh, dialled by hand.
struct Dialler {
    link: Link,
    plain: Vec<u8>,
}

impl Dialler {
    /// Dials `peer` and completes the handshake.
    fn greeted(name: &str, bootstrap: &TcpBootstrap, peer: u32) -> Self {
        let name_of_peer = bootstrap.control().peers()[peer as usize].unix_name.clone();
        let socket = super::super::socket::connect(&Address::Unix(name_of_peer)).unwrap();
        let key = plan(name, 0, 8).secret.handshake_key();
        let mut dialler = Self { link: Link::dial(socket, &key).unwrap(), plain: Vec::new() };
        dialler.link.flush().unwrap();
        assert_eq!(dialler.step(), Some(Step::Greeted));
        assert_eq!(Greeting::decode(&dialler.plain), Ok(Greeting::Mesh { rank: peer }));
        dialler
    }

    fn say(&mut self, frame: &Frame<'_>) {
        self.link.push(&frame.encode()).unwrap();
        self.link.flush().unwrap();
    }

    fn hello(&mut self, rank: u32) {
        self.say(&Frame::Hello { version: PROTOCOL_VERSION, role: Role::Messages, rank });
    }

    /// The next step of the session; `None` once the other side has closed.
    fn step(&mut self) -> Option<Step> {
        let mut scratch = [0; 4096];
        let until = Instant::now() + LIMIT;
        loop {
            match self.link.next(&mut self.plain).unwrap() {
                Step::Starved => {}
                step => return Some(step),
            }
            match self.link.receive(&mut scratch).unwrap() {
                Received::Bytes(_) => {}
                Received::Nothing => {
                    assert!(Instant::now() < until, "the mesh says nothing");
                    std::thread::sleep(Duration::from_millis(1));
                }
                Received::End => return None,
            }
        }
    }

    /// The notices that come until the other side closes.
    fn notices(&mut self) -> Vec<Notice> {
        let mut notices = Vec::new();
        while self.step().is_some() {
            match Frame::decode(&self.plain) {
                Ok(Frame::Notice(notice)) => notices.push(notice),
                other => panic!("{other:?}"),
            }
        }
        notices
    }
}

/// What a dialler hears that says who it is, or does not, only after rank 0 has begun to close.
fn farewell_of_rank_0(name: &'static str, hello: Option<u32>) -> Vec<Notice> {
    let mut heard = job(name, |b| {
        if b.rank() > 0 {
            // They leave only after all of this.
            let error = b.control().receive(JOB, 0, 1, soon()).unwrap_err();
            assert_eq!(error.id(), "peer.left");
            std::thread::sleep(Duration::from_millis(500));
            return Vec::new();
        }
        let mut dialler = Dialler::greeted(name, &b, 0);
        let (begun, closing) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                begun.send(()).unwrap();
                drop(b);
            });
            closing.recv().unwrap();
            if let Some(rank) = hello {
                std::thread::sleep(Duration::from_millis(100));
                dialler.hello(rank);
            }
            dialler.notices()
        })
    });
    heard.swap_remove(0)
}

/// The job's own scope.
const JOB: ScopeId = ScopeId(0);

#[test]
fn whoever_had_been_greeted_before_a_rank_closed_hears_goodbye() {
    let heard = farewell_of_rank_0("late", Some(3));
    assert!(matches!(heard[..], [Notice::Left { scope: JOB }, Notice::Goodbye]), "{heard:?}");
}

#[test]
fn whoever_never_says_who_it_is_sees_an_announced_end() {
    let heard = farewell_of_rank_0("silent", None);
    assert_eq!(heard, [Notice::LinkEnds]);
}

#[test]
fn the_announced_end_of_a_link_is_not_the_departure_of_a_rank() {
    const TAG: i32 = 7;
    job("ends", |b| {
        match b.rank() {
            // Rank 3 is not linked with rank 0; a link of it is played, and announces its end.
            0 => {
                let mut dialler = Dialler::greeted("ends", &b, 0);
                dialler.hello(3);
                dialler.say(&Frame::Notice(Notice::LinkEnds));
                drop(dialler);
                b.send(&[1], 5, TAG, soon()).unwrap();
                // The real one lives, and what it sends comes.
                assert_eq!(b.recv_vec(3, TAG, soon()).unwrap(), [2]);
            }
            5 => {
                b.recv_vec(0, TAG, soon()).unwrap();
                std::thread::sleep(Duration::from_millis(300));
                b.send(&[], 3, TAG, soon()).unwrap();
            }
            3 => {
                b.recv_vec(5, TAG, soon()).unwrap();
                b.send(&[2], 0, TAG, soon()).unwrap();
            }
            _ => {}
        }
        b.barrier(soon()).unwrap();
    });
}

#[test]
fn nothing_is_sent_after_goodbye() {
    job("after", |b| {
        b.barrier(soon()).unwrap();
        let control = b.control();
        let peer = (b.rank() + 1) % 8;
        drop(b);
        let error = control.post(ScopeId(9), peer, 0, b"late").unwrap_err();
        assert_eq!(error.id(), "bootstrap.argument");
        assert!(error.to_string().contains("has left the job"), "{error}");
    });
}
