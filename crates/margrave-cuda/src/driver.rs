//! A thin safe layer over the CUDA driver: one card, its memory and its programs.
//!
//! The driver's library is opened on first use, and only after asking whether it is there: cudarc panics otherwise.
//! All work of a card goes through one stream, so that commands run in the order they are given.

use std::any::Any;
use std::ffi::{CString, c_void};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use crate::error::{CudaError, LEAST_CAPABILITY, LEAST_CUDA};
use crate::phases::phase;
use crate::ptx::{MODULES, Module};

/// An error of the driver while doing `what`.
fn failed(what: &'static str) -> impl Fn(DriverError) -> CudaError {
    move |error| {
        let name = error.error_name().map_or_else(|_| format!("{:?}", error.0), |n| n.to_string_lossy().into_owned());
        CudaError::Driver { what, name }
    }
}

/// Opens the driver; returns its CUDA version and the number of cards.
fn open_driver() -> Result<(i32, u32), CudaError> {
    static DRIVER: OnceLock<Result<(i32, u32), CudaError>> = OnceLock::new();
    DRIVER
        .get_or_init(|| {
            // SAFETY: opens the library and closes it again.
            if !unsafe { sys::is_culib_present() } {
                return Err(CudaError::NoDriver);
            }
            let mut version = 0;
            // SAFETY: the library is present, and the function writes one number.
            let asked = unsafe { sys::cuDriverGetVersion(&mut version) }.result();
            asked.map_err(failed("asking for the driver's version"))?;
            if version < LEAST_CUDA {
                return Err(CudaError::DriverTooOld { found: version });
            }
            match result::init() {
                Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => return Err(CudaError::NoCard),
                other => other.map_err(failed("starting the driver"))?,
            }
            let count = result::device::get_count().map_err(failed("counting the cards"))?;
            if count <= 0 { Err(CudaError::NoCard) } else { Ok((version, count as u32)) }
        })
        .clone()
}

/// What is known about a card without using it.
#[derive(Debug, Clone)]
pub struct CardInfo {
    /// Its number, for `cuda:N`.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Its compute capability, as 10·major + minor.
    pub capability: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Number of multiprocessors.
    pub processors: u32,
    /// Bytes of shared memory that a block can have.
    pub shared: u32,
    /// The CUDA version that the driver supports, as 1000·major + 10·minor.
    pub driver: i32,
    /// Why it cannot be used, if it cannot.
    pub problem: Option<CudaError>,
}

fn attribute(device: sys::CUdevice, which: sys::CUdevice_attribute) -> Result<u32, CudaError> {
    // SAFETY: the device was returned by the driver.
    let value = unsafe { result::device::get_attribute(device, which) };
    value.map(|v| v.max(0) as u32).map_err(failed("asking about the card"))
}

fn describe(number: u32, driver: i32) -> Result<(sys::CUdevice, CardInfo), CudaError> {
    use sys::CUdevice_attribute as Ask;
    let asking = || failed("asking about the card");
    let device = result::device::get(number as i32).map_err(asking())?;
    let major = attribute(device, Ask::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(device, Ask::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let name = result::device::get_name(device).map_err(asking())?;
    let capability = 10 * major + minor;
    let problem = (capability < LEAST_CAPABILITY).then(|| CudaError::CardTooOld { card: name.clone(), capability });
    // SAFETY: the device was returned by the driver.
    let memory = unsafe { result::device::total_mem(device) }.map_err(asking())? as u64;
    let processors = attribute(device, Ask::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let shared = attribute(device, Ask::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
    Ok((device, CardInfo { number, name, capability, memory, processors, shared, driver, problem }))
}

/// The number of the card whose memory an address belongs to; `None` if it is not memory of a card.
pub(crate) fn card_of(address: u64) -> Result<Option<u32>, CudaError> {
    use sys::CUpointer_attribute_enum as Ask;
    open_driver()?;
    let ask = |which| {
        let mut answer = 0i32;
        // SAFETY: the driver is open, and both questions are answered by one 32-bit number.
        let asked = unsafe { sys::cuPointerGetAttribute(std::ptr::from_mut(&mut answer).cast(), which, address) };
        asked.result().ok().map(|()| answer)
    };
    // 2: memory of a card, managed memory included.
    let on_card = ask(Ask::CU_POINTER_ATTRIBUTE_MEMORY_TYPE) == Some(2);
    Ok(if on_card { ask(Ask::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL).map(|number| number.max(0) as u32) } else { None })
}

/// All cards that the driver finds.
pub fn cards() -> Result<Vec<CardInfo>, CudaError> {
    let (driver, count) = open_driver()?;
    (0..count).map(|number| Ok(describe(number, driver)?.1)).collect()
}

/// Lets the driver's pool of memory keep some of what is freed: allocating takes as long as computing small problems.
/// `false` if the card has no pool.
fn keep_memory(device: sys::CUdevice, memory: u64) -> Result<bool, CudaError> {
    /// Bytes that a process may keep without using them.
    const MOST: u64 = 2 << 30;
    if attribute(device, sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? == 0 {
        return Ok(false);
    }
    let mut keep = MOST.min(memory / 8);
    let which = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the device was returned by the driver; the attribute is one 64-bit number.
    unsafe {
        let pool = result::device::get_default_mem_pool(device).map_err(failed("opening the card"))?;
        let set = sys::cuMemPoolSetAttribute(pool, which, std::ptr::from_mut(&mut keep).cast()).result();
        set.map_err(failed("opening the card"))?;
    }
    Ok(true)
}

/// Bytes of memory of the processor for small results.
const PINNED: usize = 4096;

/// A card in use: a context, a stream and the loaded programs. Lives until the process ends.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) info: CardInfo,
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// Memory of the processor that the card reads and writes directly: small results come back through it.
    pinned: *mut c_void,
    /// Whether memory comes from the driver's pool, which keeps a part of what was freed for the next request.
    pooled: bool,
    modules: [OnceLock<Result<sys::CUmodule, CudaError>>; MODULES.len()],
    /// Held while a request runs: requests of several threads take turns.
    turn: Mutex<()>,
    /// The first failure of the card, after which it is no longer used.
    failure: OnceLock<CudaError>,
}

// SAFETY: the driver's handles may be used from any thread that has made the context current, which `enter` does.
unsafe impl Send for Card {}
// SAFETY: as above; the fields that change are synchronised.
unsafe impl Sync for Card {}

/// The right to give commands to a card.
pub(crate) struct Turn<'a> {
    pub(crate) card: &'static Card,
    _guard: std::sync::MutexGuard<'a, ()>,
}

/// An argument of a program: anything that may be copied to the card bit by bit.
///
/// # Safety
/// The layout must be the one that the program expects, without references.
pub(crate) unsafe trait Plain: Copy + Send + Sync + 'static {}
// SAFETY: numbers of fixed size.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}
// SAFETY: as above.
unsafe impl Plain for f64 {}

impl Card {
    fn new(number: u32) -> Result<Self, CudaError> {
        let (driver, count) = open_driver()?;
        if number >= count {
            return Err(CudaError::NoSuchCard { wanted: number, count });
        }
        let (device, info) = describe(number, driver)?;
        if let Some(problem) = &info.problem {
            return Err(problem.clone());
        }
        // SAFETY: the device was returned by the driver; the context is never released, as the card is never dropped.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(failed("opening the card"))?;
        // SAFETY: the context was just created.
        unsafe { result::ctx::set_current(context) }.map_err(failed("opening the card"))?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
        let stream = stream.map_err(failed("opening the card"))?;
        let pooled = keep_memory(device, info.memory)?;
        // SAFETY: the context is current; the memory is never released, as the card is never dropped.
        let pinned = unsafe { result::malloc_host(PINNED, 0) }.map_err(failed("opening the card"))?;
        let modules = std::array::from_fn(|_| OnceLock::new());
        Ok(Self { info, context, stream, pinned, pooled, modules, turn: Mutex::new(()), failure: OnceLock::new() })
    }

    /// The card with this number, opened on first use.
    pub(crate) fn open(number: u32) -> Result<&'static Card, CudaError> {
        static OPEN: Mutex<Vec<&'static Card>> = Mutex::new(Vec::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(card) = open.iter().find(|card| card.info.number == number) {
            return Ok(card);
        }
        let card: &'static Card = Box::leak(Box::new(phase("open the card", 0.0, None, || Card::new(number))?));
        open.push(card);
        Ok(card)
    }

    /// Waits for this thread's turn.
    pub(crate) fn enter(&'static self) -> Result<Turn<'static>, CudaError> {
        if let Some(failure) = self.failure() {
            return Err(failure.clone());
        }
        let guard = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the context is never released.
        unsafe { result::ctx::set_current(self.context) }.map_err(failed("opening the card"))?;
        Ok(Turn { card: self, _guard: guard })
    }

    /// Waits for this thread's turn again, also on a card that has failed meanwhile: what is asked of it then says so.
    fn enter_again(&'static self) -> Turn<'static> {
        let guard = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the context is never released.
        let _ = unsafe { result::ctx::set_current(self.context) };
        Turn { card: self, _guard: guard }
    }

    /// The failure that ended the use of the card.
    pub(crate) fn failure(&self) -> Option<&CudaError> {
        self.failure.get()
    }

    /// Records a failure. Too little memory is not one: a smaller request may succeed.
    pub(crate) fn note(&self, error: &CudaError) {
        if !matches!(error, CudaError::Memory { .. }) {
            let _ = self.failure.set(error.clone());
        }
    }

    fn module(&self, module: Module) -> Result<sys::CUmodule, CudaError> {
        let slot = &self.modules[module as usize];
        slot.get_or_init(|| {
            let text = module.text();
            // SAFETY: the text is a program that ends with a zero byte, and the context is current.
            let load = || unsafe { result::module::load_data(text.as_ptr().cast()) };
            phase(module.name(), text.len() as f64, None, load).map_err(failed("loading the programs"))
        })
        .clone()
    }
}

/// A program of a card.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function(sys::CUfunction);

// SAFETY: a handle that is valid in its context, which lives until the process ends.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// A turn that can be interrupted for work that waits for one of its own.
pub(crate) struct LongTurn(Option<Turn<'static>>);

impl LongTurn {
    pub(crate) fn new(turn: Turn<'static>) -> Self {
        Self(Some(turn))
    }

    /// Runs `work` without the turn, and waits for it again.
    pub(crate) fn without<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let card = self.card;
        self.0 = None;
        let result = work();
        self.0 = Some(card.enter_again());
        result
    }
}

impl std::ops::Deref for LongTurn {
    type Target = Turn<'static>;

    fn deref(&self) -> &Turn<'static> {
        self.0.as_ref().expect("a turn is missing within `without` only, which borrows it")
    }
}

impl Turn<'_> {
    /// Bytes that are free on the card.
    pub(crate) fn free_memory(&self) -> Result<u64, CudaError> {
        result::mem_get_info().map(|(free, _)| free as u64).map_err(failed("asking for free memory"))
    }

    /// Memory for `len` numbers, not initialised.
    pub(crate) fn allocate<T: Plain>(&self, len: usize, what: &'static str) -> Result<Buffer<T>, CudaError> {
        let bytes = len.max(1) * size_of::<T>();
        // SAFETY: the memory is freed by the buffer.
        let address = unsafe {
            match self.card.pooled {
                true => result::malloc_async(self.card.stream, bytes),
                false => result::malloc_sync(bytes),
            }
        };
        match address {
            Ok(address) => Ok(Buffer { card: self.card, address, len, owner: None, kind: PhantomData }),
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                Err(CudaError::Memory { what, needed: bytes as u64, free: self.free_memory()? })
            }
            Err(error) => Err(failed("allocating memory")(error)),
        }
    }

    /// A copy of `values` on the card.
    pub(crate) fn upload<T: Plain>(&self, values: &[T], what: &'static str) -> Result<Buffer<T>, CudaError> {
        let buffer = self.allocate(values.len(), what)?;
        self.write(&buffer, 0, values)?;
        Ok(buffer)
    }

    /// Copies `values` to the card, from `at` on.
    pub(crate) fn write<T: Plain>(&self, to: &Buffer<T>, at: usize, values: &[T]) -> Result<(), CudaError> {
        assert!(at + values.len() <= to.len, "within the buffer");
        if values.is_empty() {
            return Ok(());
        }
        let to = to.address + (at * size_of::<T>()) as u64;
        // SAFETY: the range lies in the buffer; the copy ends before `values` may change, as the stream is synchronised.
        unsafe { result::memcpy_htod_async(to, values, self.card.stream) }.map_err(failed("copying to the card"))?;
        self.wait()
    }

    /// Copies numbers from the card, from `at` on. Waits for the commands given before.
    pub(crate) fn read<T: Plain>(&self, from: &Buffer<T>, at: usize, values: &mut [T]) -> Result<(), CudaError> {
        assert!(at + values.len() <= from.len, "within the buffer");
        if values.is_empty() {
            return self.wait();
        }
        let from = from.address + (at * size_of::<T>()) as u64;
        let bytes = size_of_val(values);
        if bytes <= PINNED {
            // SAFETY: the range lies in the buffer and fits the memory, which this turn alone uses; `T` is made of numbers.
            unsafe {
                let there = sys::cuMemcpyDtoHAsync_v2(self.card.pinned, from, bytes, self.card.stream).result();
                there.map_err(failed("copying from the card"))?;
                self.wait()?;
                std::ptr::copy_nonoverlapping(self.card.pinned.cast::<u8>(), values.as_mut_ptr().cast::<u8>(), bytes);
            }
            return Ok(());
        }
        // SAFETY: the range lies in the buffer, and the stream is synchronised before `values` is used.
        unsafe { result::memcpy_dtoh_async(values, from, self.card.stream) }
            .map_err(failed("copying from the card"))?;
        self.wait()
    }

    /// Sets all bytes of the first `len` numbers.
    pub(crate) fn fill<T: Plain>(&self, to: &Buffer<T>, len: usize, byte: u8) -> Result<(), CudaError> {
        assert!(len <= to.len, "within the buffer");
        // SAFETY: the range lies in the buffer.
        unsafe { result::memset_d8_async(to.address, byte, len * size_of::<T>(), self.card.stream) }
            .map_err(failed("clearing memory"))
    }

    /// Loads every module that this card can run.
    pub(crate) fn load_modules(&self) -> Result<(), CudaError> {
        let runs = |module: &Module| *module != Module::Hopper || self.card.info.capability >= 90;
        MODULES.into_iter().filter(runs).try_for_each(|module| self.card.module(module).map(|_| ()))
    }

    /// The program `name` of a module; `memory`: bytes of shared memory that are given at each launch.
    pub(crate) fn function(&self, module: Module, name: &str, memory: u32) -> Result<Function, CudaError> {
        let loaded = self.card.module(module)?;
        let name = CString::new(name).expect("names contain no zero bytes");
        // SAFETY: the module is loaded in the current context.
        let function = unsafe { result::module::get_function(loaded, name) }.map_err(failed("finding a program"))?;
        if memory > 48 << 10 {
            let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function was just found.
            unsafe { result::function::set_function_attribute(function, which, memory as i32) }
                .map_err(failed("asking for shared memory"))?;
        }
        Ok(Function(function))
    }

    /// Starts a program.
    ///
    /// # Safety
    /// The arguments must be those that the program expects, and the memory they lead to must be large enough.
    pub(crate) unsafe fn launch(
        &self,
        function: Function,
        grid: (u32, u32),
        threads: u32,
        memory: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        if grid.0 == 0 || grid.1 == 0 {
            return Ok(());
        }
        // SAFETY: the caller guarantees the arguments; function and stream belong to the current context.
        unsafe {
            result::launch_kernel(function.0, (grid.0, grid.1, 1), (threads, 1, 1), memory, self.card.stream, arguments)
        }
        .map_err(failed("starting a program"))
    }

    /// Starts a program whose blocks all run at the same time; `grid` is at most [`together`](Self::together).
    ///
    /// # Safety
    /// As for [`launch`](Self::launch).
    pub(crate) unsafe fn launch_together(
        &self,
        function: Function,
        grid: u32,
        threads: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        let (f, stream, list) = (function.0, self.card.stream, arguments.as_mut_ptr());
        // SAFETY: the caller guarantees the arguments; function and stream belong to the current context.
        unsafe { sys::cuLaunchCooperativeKernel(f, grid, 1, 1, threads, 1, 1, 0, stream, list) }
            .result()
            .map_err(failed("starting a program"))
    }

    /// How many blocks of a program can run at the same time.
    pub(crate) fn together(&self, function: Function, threads: u32) -> Result<u32, CudaError> {
        let mut blocks = 0;
        // SAFETY: the function belongs to the current context; one number is written.
        unsafe { sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function.0, threads as i32, 0) }
            .result()
            .map_err(failed("asking about a program"))?;
        Ok(blocks.max(0) as u32 * self.card.info.processors)
    }

    /// Waits until all commands of the process on this card have run, those of other libraries included.
    pub(crate) fn wait_for_others(&self) -> Result<(), CudaError> {
        // SAFETY: the context is current.
        unsafe { sys::cuCtxSynchronize() }.result().map_err(failed("waiting for other commands"))
    }

    /// Waits until all commands have run.
    pub(crate) fn wait(&self) -> Result<(), CudaError> {
        // SAFETY: the stream lives until the process ends.
        unsafe { result::stream::synchronize(self.card.stream) }.map_err(failed("computing"))
    }
}

/// The arguments of a launch, by address: to be used within the call of `launch`, as values may be temporary.
macro_rules! arguments {
    ($($value:expr),* $(,)?) => {
        &mut [$(std::ptr::from_ref(&$value).cast_mut().cast::<std::ffi::c_void>()),*]
    };
}
pub(crate) use arguments;

/// Memory on a card.
#[derive(Debug)]
pub(crate) struct Buffer<T: Plain> {
    card: &'static Card,
    address: sys::CUdeviceptr,
    len: usize,
    /// Who frees the memory, if it is not this buffer.
    owner: Option<Arc<dyn Any + Send + Sync>>,
    kind: PhantomData<T>,
}

impl<T: Plain> Buffer<T> {
    /// Memory of another owner, which must be on this card and hold `len` numbers as long as `owner` lives.
    ///
    /// # Safety
    /// It must be as said, and aligned for `T`.
    pub(crate) unsafe fn lent(
        card: &'static Card,
        address: u64,
        len: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { card, address, len, owner: Some(owner), kind: PhantomData }
    }

    /// The same memory once more; it is freed when nobody uses it any more.
    pub(crate) fn shared(this: &Arc<Self>) -> Self {
        let owner: Arc<dyn Any + Send + Sync> = Arc::<Self>::clone(this);
        Self { card: this.card, address: this.address, len: this.len, owner: Some(owner), kind: PhantomData }
    }

    /// Its card.
    pub(crate) fn card(&self) -> &'static Card {
        self.card
    }

    /// Its address on the card.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl<T: Plain> Drop for Buffer<T> {
    fn drop(&mut self) {
        if self.owner.is_some() {
            return;
        }
        // SAFETY: the memory was allocated in this context and is freed once; the driver waits for commands that use it.
        // A failure leaves nothing to be done: the memory goes back when the process ends.
        unsafe {
            if result::ctx::set_current(self.card.context).is_ok() {
                let _ = match self.card.pooled {
                    true => result::free_async(self.address, self.card.stream),
                    false => result::free_sync(self.address),
                };
            }
        }
    }
}
