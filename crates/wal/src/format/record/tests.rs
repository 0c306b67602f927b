//! Tests of the format of records.

use super::*;
use crate::format::header::{LEAST_HEADER_BYTES, Layouts, MAX_RECORD_BYTES, most_record_bytes};

const IDENTITY: [u8; 16] = *b"sixteen byte id.";

/// Every layout, with the identity of a log in which it occurs.
fn layouts() -> [(Layout, Identity); 4] {
    let of = |count: u16| Identity::one_of(IDENTITY, LogId::new(count - 1), count);
    [(Layout::Short, of(1)), (Layout::Full, of(1)), (Layout::ShortWithGsn, of(3)), (Layout::Full, of(3))]
}

fn gsn_of(identity: &Identity, lsn: Lsn) -> Gsn {
    Gsn::new(lsn.get() + if identity.count > 1 { 1000 } else { 0 })
}

/// Returns the bytes of a record whose transaction's previous record is 64 bytes before it.
fn encoded(layout: Layout, identity: &Identity, payload: &[u8], lsn: Lsn) -> Vec<u8> {
    let record = NewRecord {
        kind: payload.len() as u8,
        flags: 4,
        txn: TxnId::new(5),
        page: PageId::new(6),
        prev: LogAddress::of(identity.log, Lsn::new(lsn.get() - 64)),
        after: Gsn::ZERO,
        payload,
    };
    // Earlier bytes must not show through.
    let mut bytes = vec![0xAA; layout.record_bytes(payload.len())];
    let gsn = gsn_of(identity, lsn);
    if payload.len() <= SMALL_PAYLOAD {
        encode::<SMALL_PAYLOAD>(&mut bytes, layout, &record, lsn, gsn, Some(Lsn::new(4096)));
    } else {
        encode::<MAX_RECORD_BYTES>(&mut bytes, layout, &record, lsn, gsn, Some(Lsn::new(4096)));
    }
    bytes
}

fn sealed(layout: Layout, identity: &Identity, payload: &[u8], lsn: Lsn) -> Vec<u8> {
    let mut bytes = encoded(layout, identity, payload, lsn);
    seal(&mut bytes, identity, lsn, None);
    bytes
}

#[test]
fn records_of_every_size_are_sealed() {
    let payload = |len: usize| -> Vec<u8> { (0..len).map(|i| (i * 31 + len) as u8).collect() };
    for (layout, identity) in layouts() {
        let (mut bytes, mut starts, mut lsn) = (Vec::new(), Vec::new(), Lsn::new(8200));
        let large = if layout == Layout::Full { 70_000 } else { 65_503 };
        let sizes: Vec<usize> = (0..300).chain([1000, 2047, 2048, 2049, large]).collect();
        for &len in &sizes {
            let record = encoded(layout, &identity, &payload(len), lsn);
            assert!(!is_intact(&record, &identity, lsn), "{len} bytes, not sealed");
            assert!(record[layout.bytes() + len..].iter().all(|byte| *byte == 0), "{len} bytes, padding");
            starts.push((bytes.len(), lsn));
            bytes.extend_from_slice(&record);
            lsn = lsn.advance(record.len() as u64);
        }
        seal(&mut bytes, &identity, Lsn::new(8200), None);
        for (&len, (start, lsn)) in sizes.iter().zip(starts) {
            let record = &bytes[start..start + layout.record_bytes(len)];
            assert_eq!(Header::at(record).and_then(|header| header.length()), Some(record.len()));
            assert!(is_intact(record, &identity, lsn), "{len} bytes");
            let record = decode(record, &identity, lsn).unwrap();
            assert_eq!((record.payload, record.kind), (&payload(len)[..], len as u8));
        }
    }
}

#[test]
#[should_panic(expected = "what is released is records")]
fn only_whole_records_are_sealed() {
    let (layout, identity) = layouts()[0];
    let mut bytes = encoded(layout, &identity, b"payload", Lsn::new(8200));
    bytes.resize(bytes.len() + 48, 0);
    seal(&mut bytes, &identity, Lsn::new(8200), None);
}

#[test]
fn what_is_encoded_decodes_in_its_place_only() {
    for (layout, identity) in layouts() {
        let lsn = Lsn::new(8200);
        let bytes = sealed(layout, &identity, b"payload", lsn);
        assert!(is_intact(&bytes, &identity, lsn));
        let record = decode(&bytes, &identity, lsn).unwrap();
        assert_eq!((record.lsn, record.end), (lsn, Lsn::new(8200 + bytes.len() as u64)));
        assert_eq!((record.gsn, record.durable_before), (gsn_of(&identity, lsn), Some(Lsn::new(8))));
        assert_eq!((record.txn, record.page), (TxnId::new(5), PageId::new(6)));
        assert_eq!(record.prev, LogAddress::of(identity.log, Lsn::new(8136)));
        assert_eq!((record.kind, record.flags, record.payload), (7, 4, &b"payload"[..]));

        let elsewhere = [
            (identity, Lsn::new(8208)),
            (Identity::one_of(IDENTITY, LogId::new(7), identity.count), lsn),
            (Identity::one_of(*b"sixteen byte id!", identity.log, identity.count), lsn),
        ];
        for (identity, lsn) in elsewhere {
            assert!(!is_intact(&bytes, &identity, lsn));
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    for (layout, identity) in layouts() {
        let lsn = Lsn::new(4160);
        let bytes = sealed(layout, &identity, b"some payload", lsn);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let length = Header::at(&damaged).unwrap().length();
            assert!(length != Some(bytes.len()) || !is_intact(&damaged, &identity, lsn), "{layout:?}, bit {bit}");
        }
    }
}

#[test]
fn a_record_that_names_another_place_is_not_intact() {
    for (layout, identity) in &layouts()[..3] {
        let lsn = Lsn::new(8200);
        let mut bytes = encoded(*layout, identity, b"payload", Lsn::new(8200));
        match layout {
            Layout::Full => bytes[8..16].copy_from_slice(&8208_u64.to_le_bytes()),
            _ => bytes[6] ^= 2,
        }
        seal(&mut bytes, identity, lsn, None);
        assert!(!is_intact(&bytes, identity, lsn), "{layout:?}");
    }
}

#[test]
fn zeros_and_other_bytes_are_no_record() {
    assert_eq!(Header::at(&[0; 64]).unwrap().length(), None);
    assert!(Header::at(&[0; LEAST_HEADER_BYTES - 1]).is_none());
    let (_, identity) = layouts()[0];
    // Decoders are given bytes that have passed their check, but rely on nothing.
    for fill in 0..=255 {
        for len in 0..80 {
            assert!(
                decode(&vec![fill; len], &identity, Lsn::new(8200)).is_none_or(|record| record.payload.len() < len)
            );
        }
    }
}

#[test]
fn short_headers_have_what_they_can_hold() {
    let log = LogId::new(2);
    let prev = |log: u16, lsn: u64| LogAddress::of(LogId::new(log), Lsn::new(lsn));
    let small = (TxnId::new((1 << 40) - 1), PageId::new((1 << 32) - 1), prev(2, 8200), 65_503);
    let choose = |layouts: &Layouts, (txn, page, prev, payload)| layouts.choose(txn, page, prev, payload);
    let several = Layouts::of_log(log, false, Lsn::new(4096), 16 << 30);
    assert_eq!(choose(&several, small), Layout::ShortWithGsn);
    assert_eq!(choose(&Layouts::of_log(log, true, Lsn::new(4096), 16 << 30), small), Layout::Short);
    for large in [
        (TxnId::new(1 << 40), small.1, small.2, small.3),
        (small.0, PageId::new(1 << 32), small.2, small.3),
        (small.0, small.1, prev(1, 8200), small.3),
        (small.0, small.1, prev(2, 8201), small.3),
        (small.0, small.1, small.2, 65_504),
    ] {
        assert_eq!(choose(&several, large), Layout::Full, "{large:?}");
    }
    // The log may have been larger before it was opened.
    let once_larger = Layouts::of_log(log, true, Lsn::new(60 << 30), 16 << 30);
    let with_prev = |lsn: u64| choose(&once_larger, (small.0, small.1, prev(2, lsn), small.3));
    assert_eq!((with_prev((44 << 30) - 8), with_prev(44 << 30)), (Layout::Full, Layout::Short));
    let endless = Layouts::of_log(log, true, Lsn::new(4096), u64::MAX);
    assert_eq!(choose(&endless, small), Layout::Full, "the previous record may be too far away");
    assert_eq!(choose(&endless, (small.0, small.1, LogAddress::ZERO, small.3)), Layout::Short);
    assert!(Layout::ShortWithGsn.record_bytes(100) < most_record_bytes(100));
}

#[test]
fn a_backlog_is_stated_or_rounded_up() {
    let lsn = Lsn::new(1 << 50);
    for (layout, identity) in layouts() {
        let whole = sealed(layout, &identity, b"payload", lsn);
        let (_, fields, _) = header::decode(&whole, &identity, lsn).unwrap();
        for blocks in [0, 1, 15, 16, 17, 33, 100, 1000, 40_000, 1 << 20, 15 << 24] {
            let durable = Some(Lsn::new(lsn.get() - 4096 * blocks));
            // When the record is encoded or when it is sealed.
            for [encoded, flushed] in [[durable, None], [None, durable]] {
                let mut record = whole.clone();
                layout.encode(&mut record, &fields, lsn, encoded);
                seal(&mut record, &identity, lsn, flushed);
                let RecordRef { durable_before, payload, .. } = decode(&record, &identity, lsn).unwrap();
                assert_eq!(payload, b"payload");
                if layout == Layout::Full && blocks >= 0xffff {
                    assert_eq!(durable_before, None);
                    continue;
                }
                let stated = durable_before.map(|before| (lsn.get() - before.get()) / 4096).unwrap();
                assert!((blocks..=blocks + blocks / 8).contains(&stated), "{layout:?}, {blocks}: {stated}");
            }
        }
        let mut record = whole.clone();
        layout.encode(&mut record, &fields, lsn, None);
        seal(&mut record, &identity, lsn, None);
        assert_eq!(decode(&record, &identity, lsn).unwrap().durable_before, None);
    }
}

#[test]
fn each_record_of_a_flush_states_its_own_backlog() {
    let payload = vec![7; 9000];
    for (layout, identity) in layouts() {
        let (mut flush, mut starts, mut lsn) = (Vec::new(), Vec::new(), Lsn::new(8200));
        for len in (0..600).map(|i| [100, 0, 24, 9000, 3000][i % 5]) {
            starts.push((flush.len(), lsn));
            let record = encoded(if len == 24 { Layout::Full } else { layout }, &identity, &payload[..len], lsn);
            flush.extend_from_slice(&record);
            lsn = lsn.advance(record.len() as u64);
        }
        // The log is durable up to the flush, not so far, or beyond its first records.
        for durable in [8200, 8199, 4096, 8, 50_000].map(Lsn::new) {
            let (mut together, mut alone) = (flush.clone(), flush.clone());
            seal(&mut together, &identity, Lsn::new(8200), Some(durable));
            for (i, &(start, lsn)) in starts.iter().enumerate() {
                let end = starts.get(i + 1).map_or(flush.len(), |next| next.0);
                seal(&mut alone[start..end], &identity, lsn, Some(durable));
                let before = decode(&alone[start..end], &identity, lsn).unwrap().durable_before;
                assert!(before.is_none_or(|before| before <= durable), "record {i}");
            }
            assert!(together == alone, "{layout:?}, durable up to {durable}");
        }
    }
}
