//! Before there is a context.

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::call;

use super::replay::Replay;

pub(super) fn all(replay: &mut Replay<'_>) {
    let d = replay.driver;
    let (mut number, mut free, mut total) = (0, 0, 0);
    replay.say("preinit", call!(d, cuDeviceGetCount(&raw mut number)));
    replay.say("initf", call!(d, cuInit(1)));
    call!(d, cuInit(0));
    replay.say("dev9", call!(d, cuDeviceGet(&raw mut number, 9)));
    replay.say("attr999", call!(d, cuDeviceGetAttribute(&raw mut number, 999, 0)));
    replay.say("attrdev9", call!(d, cuDeviceGetAttribute(&raw mut number, 1, 9)));
    replay.say("p2pself", call!(d, cuDeviceGetP2PAttribute(&raw mut number, 2, 0, 0)));
    let (mut address, mut host) = (0, null_mut::<c_void>());
    let (mut context, mut stream, mut event, mut module) = (null_mut(), null_mut(), null_mut(), null_mut());
    let answers = [
        ("MemAlloc_v2", call!(d, cuMemAlloc(&raw mut address, 64))),
        ("CtxGetDevice", call!(d, cuCtxGetDevice(&raw mut number))),
        ("CtxSynchronize", call!(d, cuCtxSynchronize())),
        ("CtxPopCurrent_v2", call!(d, cuCtxPopCurrent(&raw mut context))),
        ("MemGetInfo_v2", call!(d, cuMemGetInfo(&raw mut free, &raw mut total))),
        ("MemHostAlloc", call!(d, cuMemHostAlloc(&raw mut host, 64, 0))),
        ("StreamCreateWithPriority", call!(d, cuStreamCreateWithPriority(&raw mut stream, 0, 0))),
        ("EventCreate", call!(d, cuEventCreate(&raw mut event, 0))),
        (
            "ModuleLoadDataEx",
            call!(d, cuModuleLoadDataEx(&raw mut module, c"x".as_ptr().cast(), 0, null_mut(), null_mut())),
        ),
        ("StreamSynchronize", call!(d, cuStreamSynchronize(null_mut()))),
        ("DevicePrimaryCtxRelease_v2", call!(d, cuDevicePrimaryCtxRelease(0))),
        ("CtxGetCurrent", call!(d, cuCtxGetCurrent(&raw mut context))),
        ("CtxSetCurrent", call!(d, cuCtxSetCurrent(null_mut()))),
        ("CtxPushCurrent_v2", call!(d, cuCtxPushCurrent(null_mut()))),
        ("CtxEnablePeerAccess", call!(d, cuCtxEnablePeerAccess(null_mut(), 0))),
        ("MemFree_v2", call!(d, cuMemFree(0))),
        ("MemFree_v2", call!(d, cuMemFree(4096))),
        ("PointerGetAttribute", call!(d, cuPointerGetAttribute((&raw mut address).cast(), 2, 4096))),
    ];
    for (name, code) in answers {
        replay.say(&format!("noctx {name}"), code);
    }
}
