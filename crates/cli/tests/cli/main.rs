//! The command as a user meets it: words in, text, files and an exit status out.

mod support;
mod usage;
mod serve;
mod load;
mod compare;
