//! Arenas and allocators that an environment registers. Sessions plan their memory on their own, so
//! these change nothing.

use std::ffi::{c_char, c_int};

use crate::environment::Environment;
use crate::failure::{Error, StatusPointer, answer, release};
use crate::handles::{Handle, Object, give};
use crate::memory::{AllocatorHandle, MemoryInfo};
use crate::pairs::Pairs;
use crate::pointers::{Array, Out, Text};
use crate::providers::Device;

/// Sizes of an arena, `OrtArenaCfg`. They are not kept, as sessions have no arena.
#[derive(Debug)]
pub(crate) struct ArenaSizes {
    /// Gives each object an address of its own.
    _place: u8,
}

impl Object for ArenaSizes {
    const NAME: &'static str = "OrtArenaCfg";
}

pub(crate) extern "C" fn create_arena_cfg(
    _most: usize,
    _strategy: c_int,
    _first: c_int,
    _dead: c_int,
    out: Out<*mut ArenaSizes>,
) -> StatusPointer {
    answer("CreateArenaCfg", || {
        let out = out.demand()?;
        out.set(give(ArenaSizes { _place: 0 }))
    })
}

pub(crate) extern "C" fn create_arena_cfg_v2(
    keys: Array<Text>,
    values: Array<usize>,
    count: usize,
    out: Out<*mut ArenaSizes>,
) -> StatusPointer {
    answer("CreateArenaCfgV2", || {
        let out = out.demand()?;
        keys.read(count, "keys")?;
        values.read(count, "values")?;
        out.set(give(ArenaSizes { _place: 0 }))
    })
}

pub(crate) extern "C" fn release_arena_cfg(sizes: Handle<ArenaSizes>) {
    release("ReleaseArenaCfg", sizes);
}

fn check(
    env: Handle<Environment>,
    info: Handle<MemoryInfo>,
    sizes: Handle<ArenaSizes>,
) -> Result<(), Error> {
    env.get()?;
    info.get()?.demand_cpu()?;
    sizes.optional().map(|_| ())
}

pub(crate) extern "C" fn create_and_register_allocator(
    env: Handle<Environment>,
    info: Handle<MemoryInfo>,
    sizes: Handle<ArenaSizes>,
) -> StatusPointer {
    answer("CreateAndRegisterAllocator", || check(env, info, sizes))
}

pub(crate) extern "C" fn create_and_register_allocator_v2(
    env: Handle<Environment>,
    provider: Text,
    info: Handle<MemoryInfo>,
    sizes: Handle<ArenaSizes>,
    _keys: Array<*const c_char>,
    _values: Array<*const c_char>,
    _count: usize,
) -> StatusPointer {
    answer("CreateAndRegisterAllocatorV2", || {
        sardonyx_ort::providers::demand_provider(&provider.read("execution provider")?)?;
        check(env, info, sizes)
    })
}

pub(crate) extern "C" fn unregister_allocator(
    env: Handle<Environment>,
    info: Handle<MemoryInfo>,
) -> StatusPointer {
    answer("UnregisterAllocator", || {
        env.get()?;
        info.get().map(|_| ())
    })
}

pub(crate) extern "C" fn create_shared_allocator(
    env: Handle<Environment>,
    device: Handle<Device>,
    _memory: c_int,
    _allocator: c_int,
    options: Handle<Pairs>,
    out: Out<AllocatorHandle>,
) -> StatusPointer {
    answer("CreateSharedAllocator", || {
        env.get()?;
        device.get()?;
        options.optional()?;
        out.set(AllocatorHandle::default_one())
    })
}

pub(crate) extern "C" fn get_shared_allocator(
    env: Handle<Environment>,
    info: Handle<MemoryInfo>,
    out: Out<AllocatorHandle>,
) -> StatusPointer {
    answer("GetSharedAllocator", || {
        env.get()?;
        info.get()?.demand_cpu()?;
        out.set(AllocatorHandle::default_one())
    })
}

/// Frees nothing: all callers share the allocator.
pub(crate) extern "C" fn release_shared_allocator(
    env: Handle<Environment>,
    device: Handle<Device>,
    _memory: c_int,
) -> StatusPointer {
    answer("ReleaseSharedAllocator", || {
        env.get()?;
        device.get().map(|_| ())
    })
}
