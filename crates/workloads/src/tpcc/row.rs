//! Rows of TPC-C. Each begins with the fields of a struct below, in their order, one behind the
//! other without padding, numbers little-endian; a text of variable length follows where the
//! specification has one. Rows of `tpcc_customer_name`, `tpcc_new_order` and `tpcc_order_customer`
//! are empty: their keys say everything.
//!
//! Money is in cents, rates (taxes, discounts) are in ten-thousandths, times in microseconds
//! since 1970. Text is padded with zeros. A time or a carrier of 0 is the specification's null.

use crate::layout::layout;

layout! {
    /// An address.
    pub struct Address {
        /// First line of the street.
        pub street_1: [u8; 20],
        /// Second line of the street.
        pub street_2: [u8; 20],
        /// City.
        pub city: [u8; 20],
        /// State.
        pub state: [u8; 2],
        /// Postal code.
        pub zip: [u8; 9],
    }
}

layout! {
    /// A row of `tpcc_warehouse`.
    pub struct Warehouse {
        /// Payments of the year to date.
        pub ytd: i64,
        /// Sales tax.
        pub tax: u16,
        /// Name.
        pub name: [u8; 10],
        /// Address.
        pub address: Address,
    }
}

layout! {
    /// A row of `tpcc_district`.
    pub struct District {
        /// Payments of the year to date.
        pub ytd: i64,
        /// Number of the next order.
        pub next_o_id: u32,
        /// Sales tax.
        pub tax: u16,
        /// Name.
        pub name: [u8; 10],
        /// Address.
        pub address: Address,
    }
}

layout! {
    /// A row of `tpcc_customer`; 300 to 500 bytes of text follow.
    pub struct Customer {
        /// What the customer owes.
        pub balance: i64,
        /// Payments of the year to date.
        pub ytd_payment: i64,
        /// Number of payments.
        pub payment_count: u32,
        /// Number of deliveries.
        pub delivery_count: u32,
        /// When the customer was entered.
        pub since: u64,
        /// Credit limit.
        pub credit_limit: i64,
        /// Discount.
        pub discount: u16,
        /// `GC` for good, `BC` for bad credit.
        pub credit: [u8; 2],
        /// First name.
        pub first: [u8; 16],
        /// Middle name.
        pub middle: [u8; 2],
        /// Last name.
        pub last: [u8; 16],
        /// Address.
        pub address: Address,
        /// Telephone number.
        pub phone: [u8; 16],
    }
}

layout! {
    /// A row of `tpcc_history`; 12 to 24 bytes of text follow.
    pub struct History {
        /// The customer, ...
        pub c_id: u16,
        /// ... its district ...
        pub c_d_id: u8,
        /// ... and warehouse.
        pub c_w_id: u32,
        /// The district ...
        pub d_id: u8,
        /// ... and warehouse where it was paid.
        pub w_id: u32,
        /// When.
        pub date: u64,
        /// How much.
        pub amount: i64,
    }
}

layout! {
    /// A row of `tpcc_order`.
    pub struct Order {
        /// The customer.
        pub c_id: u16,
        /// When it was entered.
        pub entry_d: u64,
        /// The carrier that delivered it.
        pub carrier_id: u8,
        /// Number of order lines.
        pub ol_cnt: u8,
        /// 1 when all lines are supplied by the home warehouse, else 0.
        pub all_local: u8,
    }
}

layout! {
    /// A row of `tpcc_order_line`.
    pub struct OrderLine {
        /// The item.
        pub i_id: u32,
        /// The warehouse that supplies it.
        pub supply_w_id: u32,
        /// When it was delivered.
        pub delivery_d: u64,
        /// How many.
        pub quantity: u8,
        /// What they cost.
        pub amount: i64,
        /// Information about the district.
        pub dist_info: [u8; 24],
    }
}

layout! {
    /// A row of `tpcc_item`; 26 to 50 bytes of text follow.
    pub struct Item {
        /// Number of its picture.
        pub im_id: u32,
        /// Price.
        pub price: u32,
        /// Name.
        pub name: [u8; 24],
    }
}

layout! {
    /// A row of `tpcc_stock`; the information about ten districts, 24 bytes each, and 26 to 50
    /// bytes of text follow.
    pub struct Stock {
        /// How many there are.
        pub quantity: i32,
        /// How many have been ordered.
        pub ytd: u32,
        /// In how many order lines.
        pub order_count: u32,
        /// In how many order lines of other warehouses.
        pub remote_count: u32,
    }
}

impl Stock {
    /// Takes `quantity` for an order line (clause 2.4.2.2), perhaps of another warehouse.
    pub(crate) fn take(&mut self, quantity: u8, remote: bool) {
        self.quantity -= i32::from(quantity);
        if self.quantity < 10 {
            self.quantity += 91;
        }
        self.ytd = self.ytd.wrapping_add(u32::from(quantity));
        self.order_count = self.order_count.wrapping_add(1);
        self.remote_count = self.remote_count.wrapping_add(u32::from(remote));
    }

    /// Returns the information about district `d`, 1 to 10, in a row.
    pub fn dist_info(row: &[u8], d: u8) -> Option<[u8; 24]> {
        row.get(Self::LEN + 24 * usize::from(d.checked_sub(1)?)..)?.first_chunk().copied()
    }

    /// Returns the text in a row.
    pub fn data(row: &[u8]) -> &[u8] {
        row.get(Self::LEN + 240..).unwrap_or_default()
    }
}

/// Returns whether an item's or a stock's text marks it as an original brand.
pub(crate) fn is_original(data: &[u8]) -> bool {
    data.windows(8).any(|window| window == b"ORIGINAL")
}

/// The most bytes of a customer's text.
pub const MOST_CUSTOMER_DATA: usize = 500;
