//! Modules, functions and launches.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use warpway_cuda_sys::driver_types::*;

use crate::driver::call::{Answer, driver_functions, get, put};
use crate::driver::image::{Function, Image, Module};
use crate::driver::launch::{Launch, limits, place, resident};
use crate::driver::region::Kind;
use crate::driver::state::state;
use crate::driver::work::Work;

driver_functions! {
    /// The image is a text that ends with a zero ([`crate::driver::image`]). Options have no effect.
    required cuModuleLoadDataEx = "cuModuleLoadDataEx" (
        module: *mut CUmodule, image: *const c_void, _count: c_uint, _options: *mut CUjit_option_enum,
        _values: *mut *mut c_void,
    ) {
        let mut state = state();
        let device = state.current()?;
        if image.is_null() || module.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let text = CStr::from_ptr(image.cast()).to_str().map_err(|_| CUDA_ERROR_INVALID_IMAGE)?;
        let image = Image::parse(text, state.config.architecture)?;
        let mut loaded = Module { device, functions: Default::default(), globals: Default::default() };
        for description in image.functions {
            let number = state.fresh();
            loaded.functions.insert(description.name.clone(), number);
            state.functions.insert(number, Function { device, description, dynamic_shared: limits::SHARED });
        }
        for (name, size) in image.globals {
            let memory = state.create(device, size.next_multiple_of(4096), CU_MEM_HANDLE_TYPE_NONE)?;
            let start = state.enter(size, device, Kind::Global(memory))?;
            loaded.globals.insert(name, (start, size));
        }
        let number = state.fresh();
        state.modules.insert(number, loaded);
        put(module, number as CUmodule)
    }

    required cuModuleUnload = "cuModuleUnload" (module: CUmodule) {
        let mut state = state();
        state.current()?;
        let removed = state.modules.remove(&(module as u64)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        for function in removed.functions.values() {
            state.functions.remove(function);
        }
        for (start, _) in removed.globals.values() {
            state.leave(*start);
        }
        Ok(())
    }

    required cuModuleGetFunction = "cuModuleGetFunction" (
        function: *mut CUfunction, module: CUmodule, name: *const c_char,
    ) {
        let state = state();
        let module = state.modules.get(&(module as u64)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let found = module.functions.get(word(name)?).ok_or(CUDA_ERROR_NOT_FOUND)?;
        put(function, *found as CUfunction)
    }

    required cuModuleGetGlobal = "cuModuleGetGlobal_v2" (
        pointer: *mut CUdeviceptr, size: *mut usize, module: CUmodule, name: *const c_char,
    ) {
        let state = state();
        let module = state.modules.get(&(module as u64)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let (start, bytes) = module.globals.get(word(name)?).ok_or(CUDA_ERROR_NOT_FOUND)?;
        if !pointer.is_null() {
            put(pointer, *start)?;
        }
        if size.is_null() { Ok(()) } else { put(size, *bytes as usize) }
    }

    required cuFuncGetAttribute = "cuFuncGetAttribute" (
        value: *mut c_int, attribute: CUfunction_attribute_enum, function: CUfunction,
    ) {
        let state = state();
        let function = state.functions.get(&(function as u64)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let (major, minor) = state.config.architecture;
        put(value, match attribute {
            CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => function.description.threads,
            CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => function.description.shared,
            CU_FUNC_ATTRIBUTE_NUM_REGS => function.description.registers,
            CU_FUNC_ATTRIBUTE_PTX_VERSION | CU_FUNC_ATTRIBUTE_BINARY_VERSION => major * 10 + minor,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => function.dynamic_shared,
            CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => -1,
            attribute if attribute < CU_FUNC_ATTRIBUTE_MAX => 0,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    required cuFuncSetAttribute = "cuFuncSetAttribute" (
        function: CUfunction, attribute: CUfunction_attribute_enum, value: c_int,
    ) {
        let mut state = state();
        let function = state.functions.get_mut(&(function as u64)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        match attribute {
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                if value < 0 || value > limits::SHARED_OPT_IN - function.description.shared {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                function.dynamic_shared = value;
                Ok(())
            }
            CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => Ok(()),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Where a parameter lies; one that the function does not have is an invalid value.
    optional cuFuncGetParamInfo = "cuFuncGetParamInfo" (
        function: CUfunction, index: usize, offset: *mut usize, size: *mut usize,
    ) {
        let state = state();
        let function = state.functions.get(&(function as u64)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let parameters = &function.description.parameters;
        let (bytes, alignment) = *parameters.get(index).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let end = parameters[..index].iter().fold(0, |end, (size, alignment)| place(end, *alignment) + size);
        put(offset, place(end, alignment))?;
        if size.is_null() { Ok(()) } else { put(size, bytes) }
    }

    required cuOccupancyMaxActiveBlocksPerMultiprocessor = "cuOccupancyMaxActiveBlocksPerMultiprocessor" (
        blocks: *mut c_int, function: CUfunction, threads: c_int, shared: usize,
    ) {
        let state = state();
        let function = state.functions.get(&(function as u64)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if threads <= 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let fits = threads <= function.description.threads && shared as u64 <= function.dynamic_shared as u64;
        put(blocks, if fits { resident(&function.description, threads, shared as i64) } else { 0 })
    }

    #[allow(clippy::too_many_arguments, reason = "the driver's signature")]
    required cuLaunchKernel = "cuLaunchKernel" (
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, parameters: *mut *mut c_void, extra: *mut *mut c_void,
    ) {
        let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared, cooperative: false };
        launch(function, &shape, stream, parameters, extra)
    }

    #[allow(clippy::too_many_arguments, reason = "the driver's signature")]
    optional cuLaunchCooperativeKernel = "cuLaunchCooperativeKernel" (
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, parameters: *mut *mut c_void,
    ) {
        let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared, cooperative: true };
        launch(function, &shape, stream, parameters, std::ptr::null_mut())
    }
}

struct Shape {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    cooperative: bool,
}

/// # Safety
/// As for cuLaunchKernel: a pointer per parameter, or `extra` as the manual describes it.
unsafe fn launch(
    function: CUfunction,
    shape: &Shape,
    stream: CUstream,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Answer {
    let mut state = state();
    let number = state.stream(stream)?;
    let device = state.streams.get(&number).ok_or(CUDA_ERROR_INVALID_HANDLE)?.device;
    let function = state.functions.get(&(function as u64)).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    if function.device != device {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    fits(function, shape, state.config.multiprocessors)?;
    // SAFETY: the caller's contract.
    let arguments = unsafe { collect(&function.description.parameters, parameters, extra)? };
    let Shape { grid, block, shared, cooperative } = *shape;
    let launch =
        Launch { function: function.description.clone(), grid, block, shared, cooperative, arguments };
    state.submit(number, vec![Work::Kernel(Arc::new(launch))])
}

fn fits(function: &Function, shape: &Shape, multiprocessors: c_int) -> Answer {
    let [x, y, z] = shape.block.map(u64::from);
    let threads = x * y * z;
    let (most_y, most_z) = (65_535, 65_535);
    let bad_grid = shape.grid.contains(&0) || shape.grid[1] > most_y || shape.grid[2] > most_z;
    let bad_block = threads == 0 || x > 1024 || y > 1024 || z > 64 || threads > 1024;
    if bad_grid || bad_block || i64::from(shape.shared) > i64::from(function.dynamic_shared) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if threads > function.description.threads as u64 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let resident = resident(&function.description, threads as c_int, i64::from(shape.shared));
    if resident == 0 {
        return Err(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    }
    let blocks: u64 = shape.grid.iter().map(|extent| u64::from(*extent)).product();
    if shape.cooperative && blocks > resident as u64 * multiprocessors as u64 {
        return Err(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    Ok(())
}

/// The bytes of the parameters.
///
/// # Safety
/// As for `launch`.
unsafe fn collect(
    parameters: &[(usize, usize)],
    pointers: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Answer<Vec<u8>> {
    let mut bytes = Vec::new();
    if !pointers.is_null() {
        for (at, (size, alignment)) in parameters.iter().enumerate() {
            bytes.resize(place(bytes.len(), *alignment), 0);
            // SAFETY: one pointer per parameter, each to as many bytes as the parameter has.
            unsafe {
                let pointer = get(pointers.add(at))?;
                if pointer.is_null() {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                bytes.extend_from_slice(std::slice::from_raw_parts(pointer.cast::<u8>(), *size));
            }
        }
        return Ok(bytes);
    }
    if parameters.is_empty() {
        return Ok(bytes);
    }
    // CU_LAUNCH_PARAM_BUFFER_POINTER (1) with the area, CU_LAUNCH_PARAM_BUFFER_SIZE (2) with a pointer to its size, end (0).
    let (mut area, mut size) = (std::ptr::null::<u8>(), 0);
    let mut at = extra;
    // SAFETY: pairs of name and value up to the end, says the caller.
    unsafe {
        loop {
            match get(at)? as usize {
                0 => break,
                1 => area = get(at.add(1))?.cast(),
                2 => size = get(get(at.add(1))?.cast::<usize>())?,
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            }
            at = at.add(2);
        }
        if area.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        bytes.extend_from_slice(std::slice::from_raw_parts(area, size));
    }
    Ok(bytes)
}

/// A name.
///
/// # Safety
/// Null, or a text that ends with a zero and lives as long as the result.
unsafe fn word<'name>(name: *const c_char) -> Answer<&'name str> {
    if name.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null; the caller's contract.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| CUDA_ERROR_NOT_FOUND)
}
