//! Features of the kernel, each tried as Warpway uses it.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::AsFd as _,
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    sync::atomic::AtomicU32,
};

use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create},
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg, sockopt::socket_peercred,
    },
    process::{PidfdFlags, geteuid, getpid, pidfd_open},
    thread::futex,
};

use super::report::{Report, Status};

/// Uses a feature once.
type Attempt = fn() -> io::Result<()>;

/// Which of them work.
pub(super) struct Features {
    /// Everything that shared memory between processes needs.
    pub(super) shared_memory: bool,
}

pub(super) fn check(report: &mut Report) -> Features {
    let mut area = report.area("kernel");
    let name = rustix::system::uname();
    area.ok("version", format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy()));
    let mut shared_memory = true;
    let needed: [(&str, Attempt, &str); 4] = [
        ("futex", try_futex, "waits sleep on it: allow the futex call in the sandbox (seccomp)"),
        ("memfd seals", try_seals, "peers rely on buffers that cannot shrink: Linux 3.17 or later, seccomp"),
        (
            "passing descriptors",
            try_passing,
            "ranks of one host exchange memory this way: allow sendmsg (seccomp)",
        ),
        (
            "abstract sockets",
            try_abstract_socket,
            "ranks of one host meet there: allow AF_UNIX in the sandbox",
        ),
    ];
    for (name, attempt, hint) in needed {
        match attempt() {
            Ok(()) => area.ok(name, "works"),
            Err(error) => {
                shared_memory = false;
                area.add(name, Status::Fail, format!("does not work: {error}"), hint);
            }
        }
    }
    match pidfd_open(getpid(), PidfdFlags::empty()) {
        Ok(_) => area.ok("pidfd", "works"),
        Err(error) => area.add(
            "pidfd",
            Status::Warn,
            format!("does not work: {error}"),
            "`warpway launch` cannot end processes that have left their rank's group: Linux 5.3 or later",
        ),
    }
    Features { shared_memory }
}

/// A wait for a value that is not there returns at once, and says so.
fn try_futex() -> io::Result<()> {
    let word = AtomicU32::new(1);
    match futex::wait(&word, futex::Flags::empty(), 0, None) {
        Err(Errno::AGAIN) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn try_seals() -> io::Result<()> {
    let memory = memfd_create("warpway-doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, 4096)?;
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    match ftruncate(&memory, 0) {
        Err(Errno::PERM) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(()) => Err(io::Error::other("a sealed memory could be cut")),
    }
}

fn try_passing() -> io::Result<()> {
    let (here, there) = UnixStream::pair()?;
    let memory = memfd_create("warpway-doctor", MemfdFlags::CLOEXEC)?;
    let descriptors = [memory.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(&here, &[IoSlice::new(b"x")], &mut ancillary, SendFlags::empty())?;
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    recvmsg(&there, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let arrived = ancillary.drain().any(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next().is_some(),
        _ => false,
    });
    if arrived { Ok(()) } else { Err(io::Error::other("no descriptor arrived")) }
}

fn try_abstract_socket() -> io::Result<()> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let name = format!("warpway-doctor-{:016x}", u64::from_ne_bytes(random));
    let address = SocketAddr::from_abstract_name(name.as_bytes())?;
    let listener = UnixListener::bind_addr(&address)?;
    let stream = UnixStream::connect_addr(&address)?;
    let (accepted, _) = listener.accept()?;
    drop(stream);
    if socket_peercred(&accepted)?.uid == geteuid() {
        Ok(())
    } else {
        Err(io::Error::other("the peer's user is not shown"))
    }
}
