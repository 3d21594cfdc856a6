//! Work: streams, events, captures, graphs, kernels, and what is left when the context has gone.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use warpway_cuda_sys::Driver;
use warpway_cuda_sys::driver_types::*;

use super::replay::{GRANULE, Replay, create};
use crate::{call, optional};

/// What the calls below work on.
struct Things {
    stream: CUstream,
    second: CUstream,
    event: CUevent,
    /// Without times.
    untimed: CUevent,
    /// 4096 bytes.
    address: CUdeviceptr,
    handle: CUipcMemHandle,
}

pub(super) fn all(replay: &mut Replay<'_>) {
    let things = streams_and_events(replay);
    for mode in 0..3 {
        captures(replay, &things, mode);
    }
    let things = graphs(replay, things);
    kernels(replay, &things);
    without_context(replay, &things);
}

fn streams_and_events(replay: &mut Replay<'_>) -> Things {
    let d = replay.driver;
    let (mut stream, mut event, mut untimed, mut other) = (null_mut(), null_mut(), null_mut(), null_mut());
    let mut elapsed = 0.0;
    replay.say("sbad", call!(d, cuStreamCreateWithPriority(&raw mut stream, 9, 0)));
    replay.say("sprio", call!(d, cuStreamCreateWithPriority(&raw mut stream, 1, -99)));
    replay.say("e", call!(d, cuEventCreate(&raw mut event, 0)));
    replay.say("f", call!(d, cuEventCreate(&raw mut untimed, 2)));
    replay.say("ebad", call!(d, cuEventCreate(&raw mut other, 64)));
    replay.say("equery", call!(d, cuEventQuery(event)));
    replay.say("elap unrec", call!(d, cuEventElapsedTime(&raw mut elapsed, event, event)));
    replay.say("wait unrec", call!(d, cuStreamWaitEvent(stream, event, 0)));
    replay.say("rec", call!(d, cuEventRecord(event, stream)));
    replay.say("recf", call!(d, cuEventRecord(untimed, stream)));
    call!(d, cuStreamSynchronize(stream));
    replay.say("elap", call!(d, cuEventElapsedTime(&raw mut elapsed, event, event)));
    replay.say("elap notime", call!(d, cuEventElapsedTime(&raw mut elapsed, event, untimed)));
    let mut address = 0;
    call!(d, cuMemAlloc(&raw mut address, 4096));
    let mut handle = CUipcMemHandle::default();
    call!(d, cuIpcGetMemHandle(&raw mut handle, address));
    let mut graph = null_mut();
    replay.say("capnull", call!(d, cuStreamBeginCapture(null_mut(), 0)));
    replay.say("capmode9", call!(d, cuStreamBeginCapture(stream, 9)));
    replay.say("endnone", call!(d, cuStreamEndCapture(stream, &raw mut graph)));
    Things { stream, second: null_mut(), event, untimed, address, handle }
}

fn captures(replay: &mut Replay<'_>, things: &Things, mode: u32) {
    let &Things { stream, event, address, mut handle, .. } = things;
    let d = replay.driver;
    let (mut number, mut host, mut elapsed) = (0, null_mut::<c_void>(), 0.0);
    let mut capture = |name: &str, during: &mut dyn FnMut(&Driver) -> CUresult| {
        replay.captured(name, mode, stream, during);
    };
    capture("alloc", &mut |d| call!(d, cuMemAlloc(&raw mut number, 64)));
    capture("halloc", &mut |d| call!(d, cuMemHostAlloc(&raw mut host, 64, 0)));
    capture("ssync", &mut |d| call!(d, cuStreamSynchronize(stream)));
    capture("squery", &mut |d| call!(d, cuStreamQuery(stream)));
    capture("ctxsync", &mut |d| call!(d, cuCtxSynchronize()));
    capture("nullset", &mut |d| call!(d, cuMemsetD8Async(address, 1, 8, null_mut())));
    capture("nullquery", &mut |d| {
        // Whether the fill of the other capture is done yet is not the question.
        match call!(d, cuStreamQuery(null_mut())) {
            CUDA_ERROR_NOT_READY => CUDA_SUCCESS,
            code => code,
        }
    });
    capture("erec", &mut |d| call!(d, cuEventRecord(event, stream)));
    replay.say("equerycap", call!(d, cuEventQuery(event)));
    replay.say("esynccap", call!(d, cuEventSynchronize(event)));
    replay.say("elapcap", call!(d, cuEventElapsedTime(&raw mut elapsed, event, event)));
    replay.say("waitcap", call!(d, cuStreamWaitEvent(stream, event, 0)));
    call!(d, cuEventRecord(event, stream));
    call!(d, cuStreamSynchronize(stream));
    let (mut created, mut made, mut free, mut total) = (0, null_mut(), 0, 0);
    let (mut made_stream, mut module) = (null_mut(), null_mut());
    let mut room = vec![0u8; 1 << 16];
    let memory: *mut c_void = room.as_mut_ptr().cast();
    let mut capture = |name: &str, during: &mut dyn FnMut(&Driver) -> CUresult| {
        replay.captured(name, mode, stream, during);
    };
    capture("equery other", &mut |d| call!(d, cuEventQuery(event)));
    capture("esync other", &mut |d| call!(d, cuEventSynchronize(event)));
    capture("wait outer", &mut |d| call!(d, cuStreamWaitEvent(stream, event, 0)));
    capture("begin2", &mut |d| call!(d, cuStreamBeginCapture(stream, mode)));
    capture("memcreate", &mut |d| create(d, &mut created, GRANULE));
    // No address at all: the capture is looked at first.
    capture("free", &mut |d| call!(d, cuMemFree(created)));
    capture("estream", &mut |d| call!(d, cuStreamCreateWithPriority(&raw mut made_stream, 1, 0)));
    capture("ecreate", &mut |d| call!(d, cuEventCreate(&raw mut made, 0)));
    capture("minfo", &mut |d| call!(d, cuMemGetInfo(&raw mut free, &raw mut total)));
    let junk = c"junk".as_ptr().cast();
    capture("modload", &mut |d| {
        call!(d, cuModuleLoadDataEx(&raw mut module, junk, 0, null_mut(), null_mut()))
    });
    capture("ipcget", &mut |d| call!(d, cuIpcGetMemHandle(&raw mut handle, address)));
    capture("hreg", &mut |d| call!(d, cuMemHostRegister(memory, 1 << 16, 0)));
    capture("hunreg", &mut |d| call!(d, cuMemHostUnregister(memory)));
}

fn graphs(replay: &mut Replay<'_>, things: Things) -> Things {
    let d = replay.driver;
    let Things { stream, event, address, .. } = things;
    let (mut second, mut graph, mut executable, mut status) = (null_mut(), null_mut(), null_mut(), 0);
    call!(d, cuStreamCreateWithPriority(&raw mut second, 1, 0));
    // A fork that is not joined.
    replay.say("b", call!(d, cuStreamBeginCapture(stream, 0)));
    replay.say("r", call!(d, cuEventRecord(event, stream)));
    replay.say("w", call!(d, cuStreamWaitEvent(second, event, 0)));
    call!(d, cuStreamIsCapturing(second, &raw mut status));
    replay.value(status);
    replay.say("end other", call!(d, cuStreamEndCapture(second, &raw mut graph)));
    replay.say("set", call!(d, cuMemsetD8Async(address, 1, 8, second)));
    replay.say("unjoined", call!(d, cuStreamEndCapture(stream, &raw mut graph)));

    replay.say("b", call!(d, cuStreamBeginCapture(stream, 0)));
    replay.say("s1", call!(d, cuMemsetD8Async(address, 1, 8, stream)));
    replay.say("end", call!(d, cuStreamEndCapture(stream, &raw mut graph)));
    replay.say("inst", call!(d, cuGraphInstantiateWithFlags(&raw mut executable, graph, 0)));
    replay.say("launch", call!(d, cuGraphLaunch(executable, stream)));
    replay.say("gd", call!(d, cuGraphDestroy(graph)));
    replay.say("launch2", call!(d, cuGraphLaunch(executable, stream)));
    replay.say("xd", call!(d, cuGraphExecDestroy(executable)));
    Things { second, ..things }
}

/// What the real image of the record had.
const IMAGE: &[u8] =
    b"fake module\nfunction k parameters=8 registers=4\nfunction lim parameters=8 threads=128\nglobal gg 64\n\0";

fn kernels(replay: &mut Replay<'_>, things: &Things) {
    let d = replay.driver;
    let mut module = null_mut();
    let mut load = |image: *const c_void| {
        call!(d, cuModuleLoadDataEx(&raw mut module, image, 0, null_mut(), null_mut()))
    };
    replay.say("modjunk", load(c"junk".as_ptr().cast()));
    replay.say("modnull", load(std::ptr::null()));
    replay.say("ptx", load(IMAGE.as_ptr().cast()));
    let (mut kernel, mut limited, mut global, mut bytes) = (null_mut(), null_mut(), 0, 0);
    replay.say("nofn", call!(d, cuModuleGetFunction(&raw mut kernel, module, c"zz".as_ptr())));
    replay.say("fn", call!(d, cuModuleGetFunction(&raw mut kernel, module, c"k".as_ptr())));
    replay.say("lim", call!(d, cuModuleGetFunction(&raw mut limited, module, c"lim".as_ptr())));
    replay.say("gl", call!(d, cuModuleGetGlobal(&raw mut global, &raw mut bytes, module, c"gg".as_ptr())));
    replay.value(bytes);
    replay.attributes("glob", global);
    replay.range("glob", global);
    replay.say("nogl", call!(d, cuModuleGetGlobal(&raw mut global, &raw mut bytes, module, c"zz".as_ptr())));
    for attribute in 0..10 {
        let mut value = 0;
        let code = call!(d, cuFuncGetAttribute(&raw mut value, attribute, kernel));
        // The record shows the 32 bits that were written.
        replay.answers.push(format!("fa{attribute}={code}:{}", value.cast_unsigned()));
    }
    launches(replay, things, kernel, limited);
    for (threads, shared) in [(32, 0), (1024, 0), (1024, 60_000), (2048, 0), (0, 0)] {
        let mut blocks: c_int = 0;
        let ask =
            call!(d, cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, kernel, threads, shared));
        replay.answers.push(format!("occ {threads} {shared}={ask}:{blocks}"));
    }
    for attribute in [12, 82, 81, 97, 8, 106, 39, 111, 16, 1, 78] {
        let mut value = 0;
        call!(d, cuDeviceGetAttribute(&raw mut value, attribute, 0));
        replay.answers.push(format!("A{attribute}={value}"));
    }
    let mut reached = 9;
    replay.say("peerself", call!(d, cuCtxEnablePeerAccess(replay.context, 0)));
    replay.say("canself", call!(d, cuDeviceCanAccessPeer(&raw mut reached, 0, 0)));
    replay.value(reached);
    replay.say("unl", call!(d, cuModuleUnload(module)));
    replay.say("syncs", call!(d, cuStreamSynchronize(things.stream)));
}

fn launches(replay: &mut Replay<'_>, things: &Things, kernel: CUfunction, limited: CUfunction) {
    let d = replay.driver;
    let mut argument = things.address;
    let mut arguments = [(&raw mut argument).cast::<c_void>()];
    let arguments = arguments.as_mut_ptr();
    let launch = |function, grid: c_uint, block: c_uint, shared: c_uint| {
        let (stream, none) = (things.stream, null_mut());
        call!(d, cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, stream, arguments, none))
    };
    replay.say("launch ok", launch(kernel, 1, 32, 0));
    replay.say("launch g0", launch(kernel, 0, 32, 0));
    replay.say("launch b0", launch(kernel, 1, 0, 0));
    replay.say("launch b2048", launch(kernel, 1, 2048, 0));
    replay.say("launch lim256", launch(limited, 1, 256, 0));
    replay.say("launch sh60k", launch(kernel, 1, 32, 60_000));
    replay.say("fattr big", call!(d, cuFuncSetAttribute(kernel, 8, 300_000)));
    replay.say("fattr", call!(d, cuFuncSetAttribute(kernel, 8, 60_000)));
    replay.say("launch sh60k ok", launch(kernel, 1, 32, 60_000));
    let stream = things.stream;
    let cooperative =
        optional!(d, cuLaunchCooperativeKernel(kernel, 100_000, 1, 1, 1024, 1, 1, 0, stream, arguments));
    replay.say("launch coop big", cooperative);
    let none = null_mut();
    replay.say("noparam", call!(d, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, none, null_mut())));
}

/// No context is current; then it has been released.
fn without_context(replay: &mut Replay<'_>, things: &Things) {
    let d = replay.driver;
    let &Things { stream, second, event, untimed, address, .. } = things;
    let (mut number, mut bytes) = (0, 0);
    replay.say("ctx0", call!(d, cuCtxSetCurrent(null_mut())));
    replay.say("noctx sync s", call!(d, cuStreamSynchronize(stream)));
    replay.say("noctx set s", call!(d, cuMemsetD8Async(address, 1, 8, stream)));
    replay.say("noctx evrec", call!(d, cuEventRecord(event, stream)));
    call!(d, cuStreamSynchronize(stream));
    replay.say("noctx evq", call!(d, cuEventQuery(event)));
    replay.say("noctx free", call!(d, cuMemFree(address)));
    replay.say("noctx sd", call!(d, cuStreamDestroy(second)));
    replay.say("noctx ed", call!(d, cuEventDestroy(untimed)));
    replay.say("noctx rng", call!(d, cuMemGetAddressRange(&raw mut number, &raw mut bytes, address)));
    replay.say("noctx ptr", call!(d, cuPointerGetAttribute((&raw mut number).cast(), 2, address)));
    let mut current = null_mut();
    replay.say("ctx", call!(d, cuCtxSetCurrent(replay.context)));
    replay.say("rel", call!(d, cuDevicePrimaryCtxRelease(0)));
    replay.say("cur", call!(d, cuCtxGetCurrent(&raw mut current)));
    replay.value(if current == replay.context { "True" } else { "False" });
    replay.say("destroyed alloc", call!(d, cuMemAlloc(&raw mut number, 64)));
    replay.say("dsync", call!(d, cuCtxSynchronize()));
    replay.say("rel again", call!(d, cuDevicePrimaryCtxRelease(0)));
}
