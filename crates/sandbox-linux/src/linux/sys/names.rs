//! The C library's name services. Unlike the rest of this directory, only for a process of its own with one thread.

/// Only the hosts file and DNS, which are part of the C library itself since 2.34: a statically linked program would
/// load the host's other name services into itself, made for another version of the library.
#[cfg(target_env = "gnu")]
pub(crate) fn use_built_in_services() {
    unsafe extern "C" {
        fn __nss_configure_lookup(
            database: *const std::ffi::c_char,
            services: *const std::ffi::c_char,
        ) -> std::ffi::c_int;
    }
    // A library that knows none of it looks where its own table says.
    // SAFETY: both are NUL-terminated strings that live for ever, and the caller has one thread.
    let _known = unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
}

/// Other libraries have nothing else.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn use_built_in_services() {}
