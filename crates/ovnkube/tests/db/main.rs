//! Managers of database members (`ovnkube db serve`) with real servers and a real API, without nodes: all members are on one
//! machine, each with its own loopback address and directories.
#![allow(clippy::unwrap_used, clippy::panic)]

mod active_backup;
mod conversion;
mod departed;
mod findings;
mod five;
mod identity;
mod leaders;
mod lost_volumes;
mod member_details;
mod names;
mod nodes;
mod rebuild;
mod restore;
mod running_member;
mod site;
