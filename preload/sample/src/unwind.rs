//! The calling stack, innermost first.
//!
//! By the C compiler's own unwinder (`_Unwind_Backtrace` of libgcc_s), which follows the tables that
//! every distribution's programs carry for C++ exceptions: frame pointers are not needed. It is
//! found once, in the constructor, because loading a library allocates. Where a frame has no table
//! (machine code made at run time, as node's and Java's), its frame pointers are followed as far as
//! they go; the system itself reads the memory then, so that a wrong pointer ends the walk, not the
//! program.

use core::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Deeper stacks lose their outermost frames.
pub(crate) const FRAMES_MAX: usize = 192;
/// No frame is larger; a chain that jumps farther is none.
const FRAME_BYTES_MAX: usize = 1 << 20;
const LIBRARY: &CStr = c"libgcc_s.so.1";
const RTLD_NOW: c_int = 2;

const GO_ON: c_int = 0;
/// `_URC_END_OF_STACK`, which stops the unwinder when a callback says it.
const STOP: c_int = 5;

/// The frame pointer's number in the unwinder's tables.
#[cfg(target_arch = "x86_64")]
const FRAME_POINTER: c_int = 6;
#[cfg(target_arch = "aarch64")]
const FRAME_POINTER: c_int = 29;

type Callback = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type Backtrace = unsafe extern "C" fn(Callback, *mut c_void) -> c_int;
type GetAddress = unsafe extern "C" fn(*mut c_void) -> usize;
type GetRegister = unsafe extern "C" fn(*mut c_void, c_int) -> usize;

#[repr(C)]
struct Range {
    start: *mut c_void,
    len: usize,
}

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn getpid() -> c_int;
    fn process_vm_readv(
        pid: c_int,
        local: *const Range,
        local_count: c_ulong,
        remote: *const Range,
        remote_count: c_ulong,
        flags: c_ulong,
    ) -> isize;
}

static BACKTRACE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static GET_IP: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static GET_REGISTER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Searches for the unwinder. Without it samples have no stacks, which the lab reports.
pub(crate) fn find() {
    // SAFETY: the name ends in NUL; a constructor may load libraries.
    let library = unsafe { dlopen(LIBRARY.as_ptr(), RTLD_NOW) };
    if library.is_null() {
        return;
    }
    // SAFETY: the handle is a live library's, which is never closed; the names end in NUL.
    let symbol = |name: &CStr| unsafe { dlsym(library, name.as_ptr()) };
    GET_IP.store(symbol(c"_Unwind_GetIP"), Ordering::Relaxed);
    GET_REGISTER.store(symbol(c"_Unwind_GetGR"), Ordering::Relaxed);
    // Last: a reader that finds it finds the others.
    BACKTRACE.store(symbol(c"_Unwind_Backtrace"), Ordering::Release);
    // Its first walk may initialise things; no thread of the program waits for that then.
    Stack::new().take();
}

/// Return addresses.
pub(crate) struct Stack {
    frames: [usize; FRAMES_MAX],
    len: usize,
    frame_pointer: usize,
    /// True if it was deeper than there is room.
    pub(crate) is_cut: bool,
}

impl Stack {
    pub(crate) fn new() -> Self {
        Self {
            frames: [0; FRAMES_MAX],
            len: 0,
            frame_pointer: 0,
            is_cut: false,
        }
    }

    pub(crate) fn frames(&self) -> &[usize] {
        self.frames.get(..self.len).unwrap_or(&[])
    }

    /// False when there is no room for it.
    fn push(&mut self, address: usize) -> bool {
        match self.frames.get_mut(self.len) {
            Some(slot) => {
                *slot = address;
                self.len += 1;
                true
            }
            None => {
                self.is_cut = true;
                false
            }
        }
    }

    /// Fills it with the calling thread's stack.
    #[inline(never)]
    pub(crate) fn take(&mut self) {
        let backtrace = BACKTRACE.load(Ordering::Acquire);
        if backtrace.is_null() {
            return;
        }
        // SAFETY: the address is that of `_Unwind_Backtrace`, which has this type.
        let backtrace: Backtrace = unsafe { mem::transmute(backtrace) };
        // SAFETY: the callback gets back the pointer to this value, which lives during the call.
        unsafe { backtrace(frame, ptr::from_mut(self).cast()) };
        // The outermost frame of a complete walk has no caller, which shows as address 0.
        match self.frames().last() {
            Some(0) => self.len -= 1,
            Some(_) if !self.is_cut => self.follow_frame_pointers(),
            _ => {}
        }
    }

    /// On from a frame that no table describes.
    fn follow_frame_pointers(&mut self) {
        let mut frame_pointer = self.frame_pointer;
        while let Some([next, address]) = read_pair(frame_pointer) {
            if address < FRAMES_MAX || !self.push(address) {
                return;
            }
            let step = next.wrapping_sub(frame_pointer);
            if step == 0 || step > FRAME_BYTES_MAX {
                return;
            }
            frame_pointer = next;
        }
    }
}

/// Called for each frame, the innermost first.
unsafe extern "C" fn frame(context: *mut c_void, stack: *mut c_void) -> c_int {
    let (ip, register) = (
        GET_IP.load(Ordering::Relaxed),
        GET_REGISTER.load(Ordering::Relaxed),
    );
    if ip.is_null() || register.is_null() {
        return STOP;
    }
    // SAFETY: the addresses are those of the unwinder's functions, which have these types; `context` is its own;
    // `stack` is the value that `take` passed, to which no other code has access meanwhile.
    unsafe {
        let get_ip: GetAddress = mem::transmute(ip);
        let get_register: GetRegister = mem::transmute(register);
        let stack: &mut Stack = &mut *stack.cast();
        if !stack.push(get_ip(context)) {
            return STOP;
        }
        stack.frame_pointer = get_register(context, FRAME_POINTER);
    }
    GO_ON
}

/// The two words at an address, read by the system; `None` if they cannot be.
fn read_pair(at: usize) -> Option<[usize; 2]> {
    if at == 0 || !at.is_multiple_of(size_of::<usize>()) {
        return None;
    }
    let mut pair = [0_usize; 2];
    let len = size_of_val(&pair);
    let local = Range {
        start: pair.as_mut_ptr().cast(),
        len,
    };
    let remote = Range {
        start: at as *mut c_void,
        len,
    };
    // SAFETY: the system writes at most `len` bytes into `pair`, and returns an error where the other address cannot be
    // read.
    let read = unsafe { process_vm_readv(getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    (read == len as isize).then_some(pair)
}

#[cfg(test)]
#[path = "tests/unwind.rs"]
mod tests;
