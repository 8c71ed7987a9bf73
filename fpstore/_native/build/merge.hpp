// Streaming merges: sorted sets and their ids, with a few keys taken out or put in, and the records
// that the ids come from.
#pragma once
#include <vector>

#include "format/idpack.hpp"
#include "format/row.hpp"

namespace fpstore {

struct RecordBytes {
  const uint8_t* data;
  uint64_t size;
};

// Opens the records of successive blocks with these keys; seed is that of key 0. A fault names its
// block.
Status open_records(const std::vector<RecordBytes>& records, uint64_t first_block,
                    const uint64_t* keys, uint64_t seed, std::vector<IdRecord>* opened,
                    Fault* fault);

struct Place {
  uint64_t block;
  uint64_t id;
  uint32_t rank;
};
// Every place of the records whose id is one of the n wanted (ascending), in order of place.
std::vector<Place> find_ids(const std::vector<IdRecord>& records, uint64_t first_block,
                            const uint64_t* wanted, size_t n);

// A sorted set of rows; the functions below write no more than there is room for, sorted or not.
// What is merged has rows of as many words.
struct Keys {
  const uint64_t* keys;
  size_t n;
  unsigned words = 1;
};
bool strictly_ascending(const Keys& keys);

// Sorted keys with their ids: counts[i] of them for keys[i], one after the other.
struct Groups {
  Keys set;
  const uint64_t* counts;
  const uint64_t* ids;
  size_t id_count;
};
// What is wrong with the lengths or the order, or null.
const char* fault_of(const Groups& groups);

// Where groups are written, and how many are there. Room for all that goes in is enough.
struct GroupsOut {
  uint64_t* keys;
  uint64_t* counts;
  uint64_t* ids;
  size_t n = 0;
  size_t id_count = 0;
};

// The keys without those in drop, and those in add; returns how many.
size_t merge_keys(const Keys& keys, const Keys& drop, const Keys& add, uint64_t* out);

// The same with ids; false when a key of add is among those kept.
bool merge_groups(const Groups& groups, const Keys& drop, const Groups& add, GroupsOut* out);

// All groups of both; a key in both gets the union of its ids. False when the ids of such a key do
// not ascend.
bool union_groups(const Groups& a, const Groups& b, GroupsOut* out);

}  // namespace fpstore
