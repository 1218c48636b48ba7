//! Execution providers and devices: the CPU, and honest answers for all others.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::LazyLock;

use sardonyx_ort::{Error, providers};

use crate::environment::Environment;
use crate::failure::{StatusPointer, answer, answer_or, argument, to_c_string};
use crate::handles::{Handle, Kept, Object};
use crate::memory::{AllocatorHandle, CPU, MemoryInfo};
use crate::pairs::Pairs;
use crate::pointers::{Array, Out, Text};
use crate::session::Session;

/// Device of the machine, `OrtHardwareDevice`.
#[derive(Debug)]
pub(crate) struct Hardware {
    vendor: CString,
    metadata: Kept<Pairs>,
}

impl Object for Hardware {
    const NAME: &'static str = "OrtHardwareDevice";
}

/// Execution provider on a device, `OrtEpDevice`.
#[derive(Debug)]
pub(crate) struct Device {
    name: CString,
    vendor: CString,
    metadata: Kept<Pairs>,
    options: Kept<Pairs>,
    hardware: Kept<Hardware>,
}

impl Object for Device {
    const NAME: &'static str = "OrtEpDevice";
}

/// Address of the device, in an array for callers.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
struct DeviceAddress(*const Device);

/// The device, and the array of its address.
struct Devices {
    device: Kept<Device>,
}

static DEVICES: LazyLock<Devices> = LazyLock::new(|| Devices {
    device: Kept::new(Device {
        name: to_c_string(providers::CPU_PROVIDER),
        vendor: to_c_string(sardonyx_ort::VENDOR),
        metadata: Kept::new(Pairs::default()),
        options: Kept::new(Pairs::default()),
        hardware: Kept::new(Hardware { vendor: c"".into(), metadata: Kept::new(Pairs::default()) }),
    }),
});

/// Array of the addresses of all devices, for callers.
static ADDRESSES: LazyLock<usize> = LazyLock::new(|| {
    let addresses = Box::new([DeviceAddress(DEVICES.device.pointer())]);
    Box::leak(addresses).as_ptr().expose_provenance()
});

pub(crate) extern "C" fn get_available_providers(
    out: Out<*mut *mut c_char>,
    count: Out<c_int>,
) -> StatusPointer {
    answer("GetAvailableProviders", || {
        let (out, count) = (out.demand()?, count.demand()?);
        let allocator = AllocatorHandle::default_one();
        let names = providers::AVAILABLE.iter().map(|name| allocator.copy_text(name));
        let names: Result<Vec<*mut c_char>, Error> = names.collect();
        let names = names?;
        out.set(allocator.copy(&names)?)?;
        count.set(c_int::try_from(names.len()).unwrap_or(c_int::MAX))
    })
}

pub(crate) extern "C" fn release_available_providers(
    names: Array<*mut c_char>,
    count: c_int,
) -> StatusPointer {
    answer("ReleaseAvailableProviders", || {
        let allocator = AllocatorHandle::default_one();
        let len = usize::try_from(count).map_err(|_| argument("the number is negative"))?;
        for name in names.read(len, "names")? {
            allocator.free(name.cast())?;
        }
        allocator.free(names.address().cast_mut().cast())
    })
}

pub(crate) extern "C" fn get_execution_provider_api(
    name: Text,
    _version: u32,
    out: Out<*const c_void>,
) -> StatusPointer {
    answer("GetExecutionProviderApi", || {
        out.set(ptr::null())?;
        let name = name.read("name of the execution provider")?;
        Err(sardonyx_ort::refused::find("provider", &[&name])
            .unwrap_or_else(|| argument("the execution provider is not available")))
    })
}

pub(crate) extern "C" fn get_ep_devices(
    env: Handle<Environment>,
    out: Out<*const c_void>,
    count: Out<usize>,
) -> StatusPointer {
    answer("GetEpDevices", || {
        env.get()?;
        out.set(ptr::with_exposed_provenance(*ADDRESSES))?;
        count.set(1)
    })
}

pub(crate) extern "C" fn get_num_hardware_devices(
    env: Handle<Environment>,
    count: Out<usize>,
) -> StatusPointer {
    answer("GetNumHardwareDevices", || {
        env.get()?;
        count.set(1)
    })
}

pub(crate) extern "C" fn get_hardware_devices(
    env: Handle<Environment>,
    out: Out<*const Hardware>,
    count: usize,
) -> StatusPointer {
    answer("GetHardwareDevices", || {
        env.get()?;
        let devices = [DEVICES.device.get().hardware.pointer()];
        out.set_all(&devices[..count.min(1)])
    })
}

pub(crate) extern "C" fn hardware_device_type(_: Handle<Hardware>) -> c_int {
    answer_or("HardwareDevice_Type", 0, || Ok(0))
}

pub(crate) extern "C" fn hardware_device_vendor_id(_: Handle<Hardware>) -> u32 {
    answer_or("HardwareDevice_VendorId", 0, || Ok(0))
}

pub(crate) extern "C" fn hardware_device_vendor(device: Handle<Hardware>) -> *const c_char {
    answer_or("HardwareDevice_Vendor", c"".as_ptr(), || Ok(device.get()?.vendor.as_ptr()))
}

pub(crate) extern "C" fn hardware_device_device_id(_: Handle<Hardware>) -> u32 {
    answer_or("HardwareDevice_DeviceId", 0, || Ok(0))
}

pub(crate) extern "C" fn hardware_device_metadata(device: Handle<Hardware>) -> *const Pairs {
    answer_or("HardwareDevice_Metadata", ptr::null(), || Ok(device.get()?.metadata.pointer()))
}

pub(crate) extern "C" fn ep_device_ep_name(device: Handle<Device>) -> *const c_char {
    answer_or("EpDevice_EpName", c"".as_ptr(), || Ok(device.get()?.name.as_ptr()))
}

pub(crate) extern "C" fn ep_device_ep_vendor(device: Handle<Device>) -> *const c_char {
    answer_or("EpDevice_EpVendor", c"".as_ptr(), || Ok(device.get()?.vendor.as_ptr()))
}

pub(crate) extern "C" fn ep_device_ep_metadata(device: Handle<Device>) -> *const Pairs {
    answer_or("EpDevice_EpMetadata", ptr::null(), || Ok(device.get()?.metadata.pointer()))
}

pub(crate) extern "C" fn ep_device_ep_options(device: Handle<Device>) -> *const Pairs {
    answer_or("EpDevice_EpOptions", ptr::null(), || Ok(device.get()?.options.pointer()))
}

pub(crate) extern "C" fn ep_device_device(device: Handle<Device>) -> *const Hardware {
    answer_or("EpDevice_Device", ptr::null(), || Ok(device.get()?.hardware.pointer()))
}

pub(crate) extern "C" fn ep_device_memory_info(
    device: Handle<Device>,
    kind: c_int,
) -> *const MemoryInfo {
    answer_or("EpDevice_MemoryInfo", ptr::null(), || {
        device.get()?;
        Ok(if kind == 0 { CPU.pointer() } else { ptr::null() })
    })
}

pub(crate) extern "C" fn session_get_memory_info_for_inputs(
    session: Handle<Session>,
    out: Out<*const MemoryInfo>,
    count: usize,
) -> StatusPointer {
    answer("SessionGetMemoryInfoForInputs", || {
        let inputs = session.get()?.0.required.len();
        out.set_all(&vec![CPU.pointer(); inputs.min(count)])
    })
}

pub(crate) extern "C" fn session_get_memory_info_for_outputs(
    session: Handle<Session>,
    out: Out<*const MemoryInfo>,
    count: usize,
) -> StatusPointer {
    answer("SessionGetMemoryInfoForOutputs", || {
        let outputs = session.get()?.0.session.outputs().len();
        out.set_all(&vec![CPU.pointer(); outputs.min(count)])
    })
}

pub(crate) extern "C" fn session_get_ep_device_for_inputs(
    session: Handle<Session>,
    out: Out<*const Device>,
    count: usize,
) -> StatusPointer {
    answer("SessionGetEpDeviceForInputs", || {
        let inputs = session.get()?.0.required.len();
        out.set_all(&vec![DEVICES.device.pointer(); inputs.min(count)])
    })
}

pub(crate) extern "C" fn session_get_ep_device_for_outputs(
    session: Handle<Session>,
    out: Out<*const Device>,
    count: usize,
) -> StatusPointer {
    answer("SessionGetEpDeviceForOutputs", || {
        let outputs = session.get()?.0.session.outputs().len();
        out.set_all(&vec![DEVICES.device.pointer(); outputs.min(count)])
    })
}
