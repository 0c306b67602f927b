//! Stores simulated disks as files: for each file, its name, its length, and the sectors that are
//! not all zero.

use duramen_io::{AlignedBuf, Disk, OpenMode, SimDisk};

const SECTOR: usize = 512;

/// Packs the durable files of `disk` one after another: name and length, number of sectors, then
/// each sector with its number.
pub(crate) fn pack(disk: &SimDisk) -> Vec<u8> {
    let mut out = Vec::new();
    for name in disk.file_names() {
        let bytes = disk.durable_bytes(&name).unwrap();
        let used: Vec<(usize, &[u8])> =
            bytes.chunks(SECTOR).enumerate().filter(|(_, sector)| sector.iter().any(|byte| *byte != 0)).collect();
        for number in [name.len(), bytes.len(), used.len()] {
            out.extend((number as u32).to_le_bytes());
        }
        out.extend(name.as_bytes());
        for (index, sector) in used {
            out.extend((index as u32).to_le_bytes());
            out.extend(sector);
        }
    }
    out
}

/// Unpacks the disk.
pub(crate) fn unpack(mut packed: &[u8]) -> SimDisk {
    let disk = SimDisk::new(1);
    let mut take = |len: usize| {
        let (taken, rest) = packed.split_at(len);
        packed = rest;
        (taken.to_vec(), rest.is_empty())
    };
    let number = |bytes: Vec<u8>| u32::from_le_bytes(bytes.try_into().unwrap()) as usize;
    loop {
        let [name_len, len, count] = [4; 3].map(|len| number(take(len).0));
        let (name, mut is_last) = take(name_len);
        let name = String::from_utf8(name).unwrap();
        if let Some((directory, _)) = name.split_once('/') {
            disk.create_directory(directory).unwrap();
        }
        let mut bytes = AlignedBuf::zeroed(len);
        for _ in 0..count {
            let at = number(take(4).0) * SECTOR;
            let (sector, ends) = take(SECTOR);
            bytes[at..at + SECTOR].copy_from_slice(&sector);
            is_last = ends;
        }
        let file = disk.open(&name, OpenMode::CreateNew).unwrap();
        if len > 0 {
            file.write_at(&[&bytes], 0).unwrap();
        }
        file.sync().unwrap();
        for directory in ["", name.split_once('/').map_or("", |(directory, _)| directory)] {
            disk.sync_directory(directory).unwrap();
        }
        if is_last {
            return disk;
        }
    }
}
