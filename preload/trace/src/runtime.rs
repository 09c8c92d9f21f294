//! The parts that a `no_std` object has to define; nothing of it is ever reached in a correct one.

#[cfg(all(panic = "abort", not(test)))]
#[link(name = "c")]
unsafe extern "C" {
    fn abort() -> !;
}

#[cfg(all(panic = "abort", not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: abort has no arguments and does not return.
    unsafe { abort() }
}

// The prebuilt core library names the unwinder's personality; with `panic = "abort"` it is never
// called. Assembly, so that the symbol stays inside this object.
#[cfg(all(panic = "abort", not(test)))]
core::arch::global_asm!(".globl rust_eh_personality", "rust_eh_personality:");
