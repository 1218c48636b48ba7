//! Interface to the MPI library of the system, opened at run time and called through safe
//! functions.
//!
//! MPI standardizes source code: the types of handles and the values of constants differ between
//! libraries. There are three binary interfaces: that of MPI 5, that of MPICH and its relatives
//! (Intel MPI, MVAPICH, Cray MPI), and that of Open MPI. The symbols of a library reveal its
//! interface. The values come from `mpi_abi.h` of the standard, from `mpi.h` of MPICH 3.1 to 5, and
//! from `mpi.h` of Open MPI 4 and 5.
//!
//! *Soundness.* Functions have the types of the standard. All memory that MPI may still access
//! belongs to an [`Operation`]. It becomes accessible again once MPI reports the operation as
//! complete, and is leaked if the operation is abandoned. All calls take `&mut self`, so that two
//! of them never overlap.

// The only module of this crate with unsafe code: functions of a library that is found at run time
// cannot be called otherwise.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsString, c_char, c_int, c_void};
use std::fmt;
use std::ptr;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use sardonyx_tensor::DataType;

use crate::error::{TransportError, err};
use crate::reduction::Reduction;
use crate::scratch::{Piece, Scratch};

/// Binary interface of an MPI library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MpiInterface {
    /// Interface of MPI 5.
    Standard,
    /// Interface of MPICH.
    Mpich,
    /// Interface of Open MPI.
    OpenMpi,
}

/// MPI library with a communicator of its own.
pub(super) trait Api: Send + fmt::Debug {
    /// Returns the number of this worker and the number of workers.
    fn place(&mut self) -> Result<(usize, usize), TransportError>;

    /// Starts to send a message.
    fn send(&mut self, to: usize, bytes: Piece) -> Result<Operation, TransportError>;

    /// Starts to receive the next message of a worker, if one has been announced.
    fn receive(
        &mut self,
        from: usize,
        memory: &Scratch,
    ) -> Result<Option<Operation>, TransportError>;

    /// Tests whether an operation is complete. After that, the caller may access its memory again.
    fn test(&mut self, operation: &mut Operation) -> Result<bool, TransportError>;

    /// Creates a communicator of these workers. All of them must call this at the same time.
    fn create_group(&mut self, workers: &[usize]) -> Result<Communicator, TransportError>;

    /// Starts a collective. The caller has checked the counts.
    fn start_collective(
        &mut self,
        communicator: Communicator,
        call: Call,
    ) -> Result<Operation, TransportError>;

    /// Returns whether the library has this reduction for the type and computes it as [`Reduction`]
    /// defines it.
    fn has(&self, reduction: Reduction, data_type: DataType) -> bool;

    /// Releases the library, and finalizes it if this process initialized it here.
    fn finish(&mut self);

    /// Aborts the processes of all workers, if the library was initialized here.
    fn abort(&mut self);
}

/// Index of a communicator of an [`Api`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Communicator(usize);

impl Communicator {
    /// Communicator of all workers.
    pub(super) const ALL: Communicator = Communicator(1);
}

/// Collective with its memory. Parts have the lengths per worker, in elements of the type or,
/// without a type, in bytes.
#[derive(Debug)]
pub(super) enum Call {
    AllReduce {
        reduction: Reduction,
        data_type: DataType,
        data: Piece,
        into: Piece,
        elems: c_int,
    },
    ReduceScatter {
        reduction: Reduction,
        data_type: DataType,
        data: Piece,
        into: Piece,
        parts: Vec<c_int>,
    },
    AllGather {
        data: Piece,
        into: Piece,
        parts: Vec<c_int>,
    },
    AllToAll {
        data: Piece,
        parts: Vec<c_int>,
        into: Piece,
        into_parts: Vec<c_int>,
    },
    Broadcast {
        data: Piece,
        root: c_int,
    },
}

/// Operation in progress, with the memory on which MPI works.
#[derive(Debug)]
pub(super) struct Operation {
    /// Bits of the handle of the request.
    request: usize,
    /// Piece to send, and piece to receive.
    pieces: [Option<Piece>; 2],
    /// Lengths and offsets of parts, which MPI may read until the operation is complete.
    counts: Vec<c_int>,
    complete: bool,
}

impl Operation {
    fn new(sent: Option<Piece>, received: Option<Piece>, counts: Vec<c_int>) -> Operation {
        Operation { request: 0, pieces: [sent, received], counts, complete: false }
    }

    /// Returns the memory of a complete operation: the piece sent and the piece received.
    pub(super) fn pieces(mut self) -> [Option<Piece>; 2] {
        if self.complete { std::mem::take(&mut self.pieces) } else { [None, None] }
    }

    /// Releases the memory of an operation that could not be started, since MPI does not access it.
    fn release(mut self) {
        self.complete = true;
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if !self.complete {
            // MPI may still access the memory.
            std::mem::forget(std::mem::take(&mut self.pieces));
            std::mem::forget(std::mem::take(&mut self.counts));
        }
    }
}

/// Type of the library's handles: a number or a pointer.
trait Handle: Copy + fmt::Debug + Send + 'static {
    fn to_bits(self) -> usize;
    fn from_bits(bits: usize) -> Self;
}

/// Handles of MPICH.
impl Handle for c_int {
    fn to_bits(self) -> usize {
        self as u32 as usize
    }

    fn from_bits(bits: usize) -> Self {
        bits as c_int
    }
}

/// Handles of the other libraries. The pointers are never dereferenced here.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
struct Pointer(*mut c_void);

// SAFETY: the pointer is never dereferenced here, and the library accepts it from any thread.
unsafe impl Send for Pointer {}

impl Handle for Pointer {
    fn to_bits(self) -> usize {
        self.0.expose_provenance()
    }

    fn from_bits(bits: usize) -> Self {
        Pointer(ptr::with_exposed_provenance_mut(bits))
    }
}

/// Opaque `MPI_Status`, larger than that of any library.
#[repr(C, align(16))]
struct Status([u64; 8]);

/// Declares a struct of the functions with their types, and its constructor, which looks them up in
/// a library. A macro, because a function cannot declare fields.
macro_rules! functions {
    ($($field:ident $symbol:literal ($($argument:ty),*))*) => {
        struct Functions<H> {
            $($field: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl<H: Handle> Functions<H> {
            fn load(library: &Library) -> Result<Functions<H>, TransportError> {
                Ok(Functions {
                    $($field: {
                        // SAFETY: the standard gives the function of this name this type, up to the
                        // type of handles, and `H` is the type of the library's handles.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> c_int>(
                                $symbol.as_bytes(),
                            )
                        };
                        match found {
                            Ok(found) => *found,
                            Err(_) => return err!(
                                System,
                                "the MPI library has no {}: it is older than MPI 3",
                                $symbol
                            ),
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    initialized "MPI_Initialized" (*mut c_int)
    finalized "MPI_Finalized" (*mut c_int)
    init_thread "MPI_Init_thread" (*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int)
    query_thread "MPI_Query_thread" (*mut c_int)
    finalize "MPI_Finalize" ()
    abort "MPI_Abort" (H, c_int)
    error_string "MPI_Error_string" (c_int, *mut c_char, *mut c_int)
    comm_dup "MPI_Comm_dup" (H, *mut H)
    comm_free "MPI_Comm_free" (*mut H)
    comm_rank "MPI_Comm_rank" (H, *mut c_int)
    comm_size "MPI_Comm_size" (H, *mut c_int)
    comm_group "MPI_Comm_group" (H, *mut H)
    comm_create_group "MPI_Comm_create_group" (H, H, c_int, *mut H)
    set_errhandler "MPI_Comm_set_errhandler" (H, H)
    group_incl "MPI_Group_incl" (H, c_int, *const c_int, *mut H)
    group_free "MPI_Group_free" (*mut H)
    isend "MPI_Isend" (*const c_void, c_int, H, c_int, c_int, H, *mut H)
    improbe "MPI_Improbe" (c_int, c_int, H, *mut c_int, *mut H, *mut Status)
    imrecv "MPI_Imrecv" (*mut c_void, c_int, H, *mut H, *mut H)
    get_count "MPI_Get_count" (*const Status, H, *mut c_int)
    test "MPI_Test" (*mut H, *mut c_int, *mut Status)
    iallreduce "MPI_Iallreduce" (*const c_void, *mut c_void, c_int, H, H, H, *mut H)
    ireduce_scatter "MPI_Ireduce_scatter"
        (*const c_void, *mut c_void, *const c_int, H, H, H, *mut H)
    iallgatherv "MPI_Iallgatherv"
        (*const c_void, c_int, H, *mut c_void, *const c_int, *const c_int, H, H, *mut H)
    ialltoallv "MPI_Ialltoallv"
        (*const c_void, *const c_int, *const c_int, H,
         *mut c_void, *const c_int, *const c_int, H, H, *mut H)
    ibcast "MPI_Ibcast" (*mut c_void, c_int, H, c_int, H, *mut H)
}

/// Constants of the library that are used here.
#[derive(Debug)]
struct Constants<H> {
    world: H,
    errors_return: H,
    byte: H,
    types: [(DataType, H); 10],
    operations: [(Reduction, H); 4],
    levels: ThreadLevels,
}

/// Values of the levels of thread support of `MPI_Init_thread`.
#[derive(Debug, Clone, Copy)]
struct ThreadLevels {
    serialized: c_int,
    multiple: c_int,
}

impl<H> Constants<H> {
    /// Looks up all constants. `find` returns the handle of a name.
    fn new(
        find: impl Fn(HandleName) -> Result<H, TransportError>,
        levels: ThreadLevels,
    ) -> Result<Constants<H>, TransportError> {
        let of_type = |data_type| Ok((data_type, find(HandleName::Type(data_type))?));
        let of_operation = |reduction| Ok((reduction, find(HandleName::Operation(reduction))?));
        Ok(Constants {
            world: find(HandleName::World)?,
            errors_return: find(HandleName::ErrorsReturn)?,
            byte: find(HandleName::Byte)?,
            types: [
                of_type(DataType::Float)?,
                of_type(DataType::Double)?,
                of_type(DataType::Int8)?,
                of_type(DataType::Int16)?,
                of_type(DataType::Int32)?,
                of_type(DataType::Int64)?,
                of_type(DataType::Uint8)?,
                of_type(DataType::Uint16)?,
                of_type(DataType::Uint32)?,
                of_type(DataType::Uint64)?,
            ],
            operations: [
                of_operation(Reduction::Sum)?,
                of_operation(Reduction::Product)?,
                of_operation(Reduction::Min)?,
                of_operation(Reduction::Max)?,
            ],
            levels,
        })
    }
}

/// Name of a constant handle.
#[derive(Debug, Clone, Copy)]
enum HandleName {
    World,
    ErrorsReturn,
    Byte,
    Type(DataType),
    Operation(Reduction),
}

impl HandleName {
    /// Returns the value for MPICH, the value for the standard interface, and the symbol of Open
    /// MPI.
    fn values(self) -> (c_int, usize, &'static str) {
        match self {
            HandleName::World => (0x4400_0000, 0x101, "ompi_mpi_comm_world"),
            HandleName::ErrorsReturn => (0x5400_0001, 0x143, "ompi_mpi_errors_return"),
            HandleName::Operation(Reduction::Max) => (0x5800_0001, 0x23, "ompi_mpi_op_max"),
            HandleName::Operation(Reduction::Min) => (0x5800_0002, 0x22, "ompi_mpi_op_min"),
            HandleName::Operation(Reduction::Sum) => (0x5800_0003, 0x21, "ompi_mpi_op_sum"),
            HandleName::Operation(_) => (0x5800_0004, 0x24, "ompi_mpi_op_prod"),
            HandleName::Type(DataType::Float) => (0x4c00_040a, 0x210, "ompi_mpi_float"),
            HandleName::Type(DataType::Double) => (0x4c00_080b, 0x214, "ompi_mpi_double"),
            HandleName::Type(DataType::Int8) => (0x4c00_0137, 0x240, "ompi_mpi_int8_t"),
            HandleName::Type(DataType::Int16) => (0x4c00_0238, 0x248, "ompi_mpi_int16_t"),
            HandleName::Type(DataType::Int32) => (0x4c00_0439, 0x250, "ompi_mpi_int32_t"),
            HandleName::Type(DataType::Int64) => (0x4c00_083a, 0x258, "ompi_mpi_int64_t"),
            HandleName::Type(DataType::Uint8) => (0x4c00_013b, 0x241, "ompi_mpi_uint8_t"),
            HandleName::Type(DataType::Uint16) => (0x4c00_023c, 0x249, "ompi_mpi_uint16_t"),
            HandleName::Type(DataType::Uint32) => (0x4c00_043d, 0x251, "ompi_mpi_uint32_t"),
            HandleName::Type(DataType::Uint64) => (0x4c00_083e, 0x259, "ompi_mpi_uint64_t"),
            HandleName::Byte | HandleName::Type(_) => (0x4c00_010d, 0x247, "ompi_mpi_byte"),
        }
    }
}

/// Opens and initializes the first available library. Tries `names` in order.
pub(super) fn open(names: &[OsString]) -> Result<(MpiInterface, Box<dyn Api>), TransportError> {
    let library = open_library(names)?;
    let has = |symbol: &str| {
        // SAFETY: only checks that the symbol exists, without using its address.
        unsafe { library.get::<*const c_void>(symbol.as_bytes()) }.is_ok()
    };
    let opened: (MpiInterface, Box<dyn Api>) = if has_standard_interface(&library) {
        let find = |name: HandleName| Ok(Pointer::from_bits(name.values().1));
        let constants = Constants::new(find, ThreadLevels { serialized: 2048, multiple: 4096 })?;
        (MpiInterface::Standard, Box::new(Mpi::<Pointer>::start(&library, constants)?))
    } else if has("ompi_mpi_comm_world") {
        let find = |name: HandleName| {
            let symbol = name.values().2;
            // SAFETY: only takes the address of the symbol, which is the handle.
            match unsafe { library.get::<*mut c_void>(symbol.as_bytes()) } {
                Ok(address) => Ok(Pointer(*address)),
                Err(_) => err!(System, "the MPI library has no {symbol}"),
            }
        };
        let constants = Constants::new(find, ThreadLevels { serialized: 2, multiple: 3 })?;
        (MpiInterface::OpenMpi, Box::new(Mpi::<Pointer>::start(&library, constants)?))
    } else if has("MPIR_Dup_fn") {
        let find = |name: HandleName| Ok(name.values().0);
        let constants = Constants::new(find, ThreadLevels { serialized: 2, multiple: 3 })?;
        (MpiInterface::Mpich, Box::new(Mpi::<c_int>::start(&library, constants)?))
    } else {
        return err!(
            System,
            "the MPI library has neither the interface of MPI 5 nor MPICH's nor Open MPI's"
        );
    };
    // The library stays loaded until the process ends, because MPI leaves threads and handlers
    // behind.
    std::mem::forget(library);
    Ok(opened)
}

/// Opens the first library that exists. Prefers one that the process has loaded already.
fn open_library(names: &[OsString]) -> Result<Library, TransportError> {
    /// Flag that limits `dlopen` to libraries that are loaded already.
    const NO_LOAD: c_int = if cfg!(target_os = "linux") { 4 } else { 0x10 };
    let mut last = None;
    for more in [NO_LOAD, 0] {
        for name in names {
            // SAFETY: initializers of an MPI library have no observable effect. Its plugins look up
            // its symbols, so these are made global.
            match unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL | more) } {
                Ok(library) => return Ok(library),
                Err(error) => last = Some(error),
            }
        }
    }
    let tried: Vec<_> = names.iter().map(|name| name.display().to_string()).collect();
    let last = last.map_or(String::new(), |error| format!(": {error}"));
    err!(
        System,
        "no MPI library can be opened: tried {}{last}; --mpi=FILE names another one",
        tried.join(", ")
    )
}

/// Returns whether `MPI_Abi_get_version` reports the standard interface. Libraries that have this
/// function may have another interface.
fn has_standard_interface(library: &Library) -> bool {
    type GetVersion = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    let (mut major, mut minor) = (-1, -1);
    // SAFETY: the standard gives the function this type, and lets it be called at any time.
    let asked = unsafe {
        library
            .get::<GetVersion>(b"MPI_Abi_get_version")
            .map(|get_version| get_version(&raw mut major, &raw mut minor))
    };
    matches!(asked, Ok(0)) && major >= 1
}

/// MPI library with handles of type `H`.
struct Mpi<H> {
    functions: Functions<H>,
    constants: Constants<H>,
    /// Communicators by index: first that of messages, then that of collectives of all workers,
    /// then those of groups. Libraries create communicators of groups by messages of their own,
    /// which a receive could match if there were only one.
    communicators: Vec<H>,
    /// Whether the library was initialized here, and has to be finalized here.
    is_ours: bool,
    /// Null handle, a placeholder for results.
    none: H,
}

impl<H: Handle> Mpi<H> {
    fn start(library: &Library, constants: Constants<H>) -> Result<Mpi<H>, TransportError> {
        let none = H::from_bits(0);
        let functions = Functions::load(library)?;
        let mut mpi = Mpi { functions, constants, communicators: Vec::new(), is_ours: false, none };
        mpi.initialize()?;
        for _ in 0..2 {
            let mut all = none;
            // SAFETY: the library is initialized, and all memory lives until the calls return.
            let code = unsafe { (mpi.functions.comm_dup)(mpi.constants.world, &raw mut all) };
            mpi.check("MPI_Comm_dup", code)?;
            // SAFETY: as above.
            let code = unsafe { (mpi.functions.set_errhandler)(all, mpi.constants.errors_return) };
            mpi.check("MPI_Comm_set_errhandler", code)?;
            mpi.communicators.push(all);
        }
        Ok(mpi)
    }

    /// Initializes the library unless the process has done so, and checks that any thread may call
    /// it.
    fn initialize(&mut self) -> Result<(), TransportError> {
        let (mut initialized, mut finalized, mut level) = (0, 0, 0);
        // SAFETY: these functions may be called at any time.
        unsafe {
            (self.functions.initialized)(&raw mut initialized);
            (self.functions.finalized)(&raw mut finalized);
        }
        if finalized != 0 {
            return err!(System, "MPI was finalized in this process and cannot begin again");
        }
        let code = if initialized == 0 {
            self.is_ours = true;
            let wanted = self.constants.levels.multiple;
            // SAFETY: the library is not initialized yet. Null pointers stand for the arguments of
            // the program.
            unsafe {
                let none = ptr::null_mut();
                (self.functions.init_thread)(ptr::null_mut(), none, wanted, &raw mut level)
            }
        } else {
            // SAFETY: the library is initialized.
            unsafe { (self.functions.query_thread)(&raw mut level) }
        };
        self.check("MPI_Init_thread", code)?;
        // Calls never overlap here, so the level below the requested one is sufficient.
        if level < self.constants.levels.serialized {
            return err!(System, "the MPI library must not be called from several threads");
        }
        Ok(())
    }

    fn check(&self, call: &str, code: c_int) -> Result<(), TransportError> {
        if code == 0 {
            return Ok(());
        }
        // `MPI_MAX_ERROR_STRING` is at most 512.
        let (mut text, mut len) = ([0 as c_char; 1024], 0);
        // SAFETY: the buffer is longer than any error string.
        unsafe { (self.functions.error_string)(code, text.as_mut_ptr(), &raw mut len) };
        text[text.len() - 1] = 0;
        // SAFETY: the last byte is zero.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy();
        err!(System, "{call}: {text}")
    }

    /// Completes the start of an operation: stores its request, or releases its memory after an
    /// error.
    fn finish_start(
        &self,
        call: &str,
        code: c_int,
        request: H,
        mut operation: Operation,
    ) -> Result<Operation, TransportError> {
        if let Err(error) = self.check(call, code) {
            operation.release();
            return Err(error);
        }
        operation.request = request.to_bits();
        Ok(operation)
    }

    fn find_type(&self, data_type: DataType) -> Option<H> {
        self.constants.types.iter().find(|(of, _)| *of == data_type).map(|(_, handle)| *handle)
    }

    fn find_operation(&self, reduction: Reduction) -> Option<H> {
        self.constants.operations.iter().find(|(of, _)| *of == reduction).map(|(_, handle)| *handle)
    }

    fn find_handles(
        &self,
        reduction: Reduction,
        data_type: DataType,
    ) -> Result<(H, H), TransportError> {
        match (self.find_type(data_type), self.find_operation(reduction)) {
            (Some(data_type), Some(operation)) => Ok((data_type, operation)),
            _ => err!(Unsupported, "MPI has no {reduction} of {data_type}"),
        }
    }
}

/// Converts a length to a count of MPI.
fn to_count(len: usize) -> Result<c_int, TransportError> {
    match c_int::try_from(len) {
        Ok(count) => Ok(count),
        Err(_) => err!(Argument, "{len} bytes are more than an MPI call can move"),
    }
}

/// Appends the offsets of parts to their lengths.
fn append_offsets(mut parts: Vec<c_int>) -> Vec<c_int> {
    let mut place = 0;
    for index in 0..parts.len() {
        let len = parts[index];
        parts.push(place);
        place += len;
    }
    parts
}

impl<H: Handle> Api for Mpi<H> {
    fn place(&mut self) -> Result<(usize, usize), TransportError> {
        let (mut rank, mut size) = (0, 0);
        let all = self.communicators[0];
        // SAFETY: the communicator exists.
        let code = unsafe { (self.functions.comm_rank)(all, &raw mut rank) };
        self.check("MPI_Comm_rank", code)?;
        // SAFETY: the communicator exists.
        let code = unsafe { (self.functions.comm_size)(all, &raw mut size) };
        self.check("MPI_Comm_size", code)?;
        Ok((rank as usize, size as usize))
    }

    fn send(&mut self, to: usize, bytes: Piece) -> Result<Operation, TransportError> {
        let (len, mut request) = (to_count(bytes.len())?, self.none);
        let data = bytes.as_ptr().cast();
        let operation = Operation::new(Some(bytes), None, Vec::new());
        let (byte, all) = (self.constants.byte, self.communicators[0]);
        // SAFETY: the bytes belong to the operation, which keeps them until it is complete. They
        // lie on the heap, so moving the operation does not move them.
        let code = unsafe {
            (self.functions.isend)(data, len, byte, to as c_int, 0, all, &raw mut request)
        };
        self.finish_start("MPI_Isend", code, request, operation)
    }

    fn receive(
        &mut self,
        from: usize,
        memory: &Scratch,
    ) -> Result<Option<Operation>, TransportError> {
        let (mut flag, mut message, mut len) = (0, self.none, 0);
        let mut status = Status([0; 8]);
        let (byte, all) = (self.constants.byte, self.communicators[0]);
        // SAFETY: all pointers are valid until the call returns.
        let code = unsafe {
            let (flag, message) = (&raw mut flag, &raw mut message);
            (self.functions.improbe)(from as c_int, 0, all, flag, message, &raw mut status)
        };
        self.check("MPI_Improbe", code)?;
        if flag == 0 {
            return Ok(None);
        }
        // SAFETY: the status belongs to a message.
        let code = unsafe { (self.functions.get_count)(&raw const status, byte, &raw mut len) };
        self.check("MPI_Get_count", code)?;
        let mut bytes = memory.take(len as usize)?;
        let data = bytes.as_mut_ptr().cast();
        let operation = Operation::new(None, Some(bytes), Vec::new());
        let mut request = self.none;
        // SAFETY: the memory has the length of the message, and belongs to the operation, which
        // keeps it until it is complete.
        let code =
            unsafe { (self.functions.imrecv)(data, len, byte, &raw mut message, &raw mut request) };
        self.finish_start("MPI_Imrecv", code, request, operation).map(Some)
    }

    fn test(&mut self, operation: &mut Operation) -> Result<bool, TransportError> {
        if operation.complete {
            return Ok(true);
        }
        let (mut request, mut flag) = (H::from_bits(operation.request), 0);
        let mut status = Status([0; 8]);
        // SAFETY: the request was started and is not complete yet.
        let code =
            unsafe { (self.functions.test)(&raw mut request, &raw mut flag, &raw mut status) };
        operation.request = request.to_bits();
        self.check("MPI_Test", code)?;
        operation.complete = flag != 0;
        Ok(operation.complete)
    }

    fn create_group(&mut self, workers: &[usize]) -> Result<Communicator, TransportError> {
        let ranks: Vec<c_int> = workers.iter().map(|worker| *worker as c_int).collect();
        let (mut world, mut group, mut made) = (self.none, self.none, self.none);
        let all = self.communicators[Communicator::ALL.0];
        // SAFETY: handles come from the calls before, and all pointers are valid until the calls
        // return. The ranks exist and are distinct.
        let code = unsafe {
            let mut code = (self.functions.comm_group)(all, &raw mut world);
            if code == 0 {
                let ranks_len = ranks.len() as c_int;
                code =
                    (self.functions.group_incl)(world, ranks_len, ranks.as_ptr(), &raw mut group);
                (self.functions.group_free)(&raw mut world);
            }
            if code == 0 {
                code = (self.functions.comm_create_group)(all, group, 0, &raw mut made);
                (self.functions.group_free)(&raw mut group);
            }
            if code == 0 {
                code = (self.functions.set_errhandler)(made, self.constants.errors_return);
            }
            code
        };
        self.check("MPI_Comm_create_group", code)?;
        self.communicators.push(made);
        Ok(Communicator(self.communicators.len() - 1))
    }

    fn start_collective(
        &mut self,
        communicator: Communicator,
        call: Call,
    ) -> Result<Operation, TransportError> {
        let communicator = self.communicators[communicator.0];
        let (byte, mut request) = (self.constants.byte, self.none);
        // The memory, and the lengths and offsets of parts, belong to the operation, which keeps
        // them in place until it is complete.
        let (name, code, operation) = match call {
            Call::AllReduce { reduction, data_type, data, mut into, elems } => {
                let (of_type, op) = self.find_handles(reduction, data_type)?;
                let (from, to) = (data.as_ptr().cast(), into.as_mut_ptr().cast());
                let operation = Operation::new(Some(data), Some(into), Vec::new());
                // SAFETY: see above; both pieces have `elems` elements.
                let code = unsafe {
                    let request = &raw mut request;
                    (self.functions.iallreduce)(from, to, elems, of_type, op, communicator, request)
                };
                ("MPI_Iallreduce", code, operation)
            }
            Call::ReduceScatter { reduction, data_type, data, mut into, parts } => {
                let (of_type, op) = self.find_handles(reduction, data_type)?;
                let (from, to) = (data.as_ptr().cast(), into.as_mut_ptr().cast());
                let operation = Operation::new(Some(data), Some(into), parts);
                let parts = operation.counts.as_ptr();
                // SAFETY: see above; the parts fill `data`, and this worker's part fills `into`.
                let code = unsafe {
                    let request = &raw mut request;
                    let call = self.functions.ireduce_scatter;
                    call(from, to, parts, of_type, op, communicator, request)
                };
                ("MPI_Ireduce_scatter", code, operation)
            }
            Call::AllGather { data, mut into, parts } => {
                let (from, to) = (data.as_ptr().cast(), into.as_mut_ptr().cast());
                let (len, workers) = (to_count(data.len())?, parts.len());
                let operation = Operation::new(Some(data), Some(into), append_offsets(parts));
                let (parts, places) = operation.counts.split_at(workers);
                let (parts, places) = (parts.as_ptr(), places.as_ptr());
                // SAFETY: see above; the parts fill `into`.
                let code = unsafe {
                    let request = &raw mut request;
                    let call = self.functions.iallgatherv;
                    call(from, len, byte, to, parts, places, byte, communicator, request)
                };
                ("MPI_Iallgatherv", code, operation)
            }
            Call::AllToAll { data, parts, mut into, into_parts } => {
                let (from, to) = (data.as_ptr().cast(), into.as_mut_ptr().cast());
                let workers = parts.len();
                let counts = [append_offsets(parts), append_offsets(into_parts)].concat();
                let operation = Operation::new(Some(data), Some(into), counts);
                let mut counts = operation.counts.chunks(workers).map(<[c_int]>::as_ptr);
                let mut next = || counts.next().unwrap_or(ptr::null());
                let (parts, places, into_parts, into_places) = (next(), next(), next(), next());
                // SAFETY: see above; the parts fill both pieces.
                let code = unsafe {
                    (self.functions.ialltoallv)(
                        from,
                        parts,
                        places,
                        byte,
                        to,
                        into_parts,
                        into_places,
                        byte,
                        communicator,
                        &raw mut request,
                    )
                };
                ("MPI_Ialltoallv", code, operation)
            }
            Call::Broadcast { mut data, root } => {
                let (len, to) = (to_count(data.len())?, data.as_mut_ptr().cast());
                let operation = Operation::new(None, Some(data), Vec::new());
                // SAFETY: see above.
                let code = unsafe {
                    let request = &raw mut request;
                    (self.functions.ibcast)(to, len, byte, root, communicator, request)
                };
                ("MPI_Ibcast", code, operation)
            }
        };
        self.finish_start(name, code, request, operation)
    }

    fn has(&self, reduction: Reduction, data_type: DataType) -> bool {
        let is_sum = matches!(reduction, Reduction::Sum | Reduction::Product);
        let is_right = match data_type {
            // Libraries compare as C does, so their minima and maxima may lose a NaN.
            DataType::Float | DataType::Double => is_sum,
            // Sums and products of Open MPI 5 saturate for these types.
            DataType::Int8 | DataType::Int16 | DataType::Uint8 | DataType::Uint16 => !is_sum,
            _ => true,
        };
        is_right && self.find_handles(reduction, data_type).is_ok()
    }

    fn finish(&mut self) {
        let communicators = std::mem::take(&mut self.communicators);
        if self.is_ours {
            // SAFETY: the library was initialized here, and no call follows.
            unsafe { (self.functions.finalize)() };
            return;
        }
        for mut communicator in communicators {
            // SAFETY: the communicator was created here and is not in use any more.
            unsafe { (self.functions.comm_free)(&raw mut communicator) };
        }
    }

    fn abort(&mut self) {
        if self.is_ours {
            // SAFETY: the library is initialized.
            unsafe { (self.functions.abort)(self.constants.world, 1) };
        }
    }
}

impl<H: Handle> fmt::Debug for Mpi<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mpi({:?}, {} communicators)", self.constants.world, self.communicators.len())
    }
}
