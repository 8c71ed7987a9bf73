// What is asked of a join: the pairs of rows of a set, or of one row of each of two sets, that lie
// within a radius of each other.
#pragma once
#include "columns/near_tags.hpp"
#include "format/permutation.hpp"
#include "isa/runtime.hpp"

namespace fpstore {

// The rows of a large bucket are split into groups by a part of their tags: once by the first bits
// of the tag, once by as many bits that follow.
constexpr unsigned kMaxTagGroupBits = kTagBits / 2;                   // of such a part
constexpr size_t kGroupStarts = (size_t{1} << kMaxTagGroupBits) + 1;  // with the end of the last
constexpr uint64_t kSplitFrom = 512;  // rows of a bucket that is split

// Of a permuted table: the bits of a fingerprint that are its bucket, and those that are its tag. A
// pair meets in the table if its rows differ in at most `flips` bits of the bucket, and in at most
// `both` of the two together. That some table has each pair within the radius is shown in
// columns/request.hpp; the first of them reports it.
struct TableRule {
  uint64_t bucket_mask[kMaxWords];
  uint64_t tag_mask[kMaxWords];
  unsigned flips;
  unsigned both;
};

// Permuted rows in the order of their buckets. Bucket b has the rows [starts[b], starts[b + 1]);
// the tags are 16 bits each, with kSectionRoom bytes behind them that can be read.
struct JoinSide {
  const uint64_t* rows;
  const uint64_t* starts;
  const uint8_t* tags;
};

// Scratch memory for the groups of a bucket: places and tags for the rows of the largest bucket,
// with kSectionRoom bytes behind the tags.
struct GroupBuffers {
  uint64_t* places;
  uint16_t* tags;
  uint64_t* starts;  // of the groups: kGroupStarts
};

struct Join {
  JoinSide side;
  JoinSide opposite;  // the other set, in the same order
  bool between;       // whether there is one: otherwise the set is joined with itself
  GroupBuffers room;
  const TableRule* rules;  // of this table, and those before it
  unsigned table;
  unsigned bucket_bits;
  unsigned radius;
  uint16_t tag_mask;
  Permutation inverse;
};

// How far a join has come.
struct JoinPlace {
  uint64_t bucket, end;  // those that remain
  uint32_t flipped;      // bits of the mask
  uint32_t mask;         // the bits in which the other bucket differs
  unsigned part, group;  // of a large bucket: the part of the tags that groups its rows (0 or 1),
                         // and the next group
  bool grouped;          // whether the rows are grouped by this part
  uint64_t row, other;   // in the bucket or group, and in the other bucket
};

// Pairs as rows and their distances.
struct PairSink {
  uint64_t* a;
  uint64_t* b;
  uint16_t* distances;
  size_t count, room;  // of pairs, at least kTagsAtOnce
};

// Adds pairs until there is none left (true) or perhaps no room (false). When it is stopped,
// stop->ended is set.
using JoinRows = bool (*)(const Join& join, JoinPlace* place, PairSink* sink, Stopper* stop);

// Scratch memory for sorting a bucket by groups: rows and tags of the largest bucket.
struct OrderBuffers {
  uint64_t* rows;
  uint16_t* tags;
  uint64_t* starts;  // of the groups: kGroupStarts
};

// A table whose rows are linked: as a side of a join, but rows and tags change places.
struct LinkTable {
  uint64_t* rows;
  const uint64_t* starts;
  uint16_t* tags;
  const TableRule* rules;  // of this table, and those before it
  unsigned table;
  unsigned bucket_bits;
  unsigned radius;
  uint16_t tag_mask;
  Permutation inverse;
  OrderBuffers room;  // where no bit of the bucket is flipped
  // Where bits are: live[b] is the end of those rows of bucket b that were not reached, at first
  // starts[b + 1]; room for all rows.
  uint64_t* live;
  uint64_t* stack;
};

// How far the links have come.
struct LinkPlace {
  uint64_t bucket, end;  // those that remain, or where starts are looked for
  uint64_t waiting;      // on the stack: reached, but have not asked
  uint64_t row;          // that asks
  uint32_t flipped;      // of its bucket, in that which is asked
  uint32_t mask;
  uint64_t upto;  // rows before it are still to be compared
  bool asking, begun;
  unsigned part, group;  // as of a JoinPlace
  bool grouped;
  bool searching;  // a group
  uint64_t live;   // its rows before it were not reached
};

using LinkRows = bool (*)(const LinkTable& table, LinkPlace* place, PairSink* sink, Stopper* stop);

// Sets of rows, each in the order in which its rows are preferred as representatives: set s has the
// rows [lims[s], lims[s + 1]).
struct Grouping {
  const uint64_t* rows;
  const uint64_t* lims;
  uint64_t count;  // of the sets
  unsigned radius;
  uint64_t* waiting;  // room for the rows of the largest
};

// Writes the place of the representative of each row, which may be its own. False when it is
// stopped.
using GroupRows = bool (*)(const Grouping& sets, uint64_t* representatives, Stopper* stop);

// Links members of a group of rows; see pairs/groups.hpp.
using LinkGroup = uint64_t (*)(const uint64_t* rows, const uint64_t* members, uint64_t n,
                               unsigned radius, uint32_t* labels, uint64_t* links);

struct PairKernels {
  // Of rows of 1, 2 and 4 words: at half their number.
  JoinRows join[3];
  LinkRows link[3];
  GroupRows group[3];
  LinkGroup link_group[3];
};

// Writes where each bucket of rows begins, which are in the order of their leading bits, and their
// tags, the 16 bits that follow, unless `tags` is null. False when the rows are in another order; a
// call that is stopped has done a part.
bool index_buckets(const uint64_t* rows, unsigned words, uint64_t count, unsigned bucket_bits,
                   uint64_t* starts, uint16_t* tags, Stopper* stop);

// Rows that share their leading `depth` bits; the `bits` bits behind these are their buckets.
struct RowsOfPart {
  const uint64_t* rows;
  unsigned words;
  uint64_t count;
  unsigned depth, bits;
};

// Writes rows in the order of their buckets, stable, where each bucket begins, and the tags. starts
// has 2^bits + 2 places, of which the last is scratch. Without `out`, the rows are in this order.
void sort_part(const RowsOfPart& part, uint64_t* out, uint64_t* starts, uint16_t* tags);

// Ascending rows, and where those with each value of the leading bits begin.
struct RowIndex {
  const uint64_t* rows;
  unsigned words;
  uint64_t count;
  unsigned bits;
  const uint64_t* starts;  // 2^bits + 1
};

// The places of some rows among ascending ones; false when one is not among them.
bool find_places(const RowIndex& index, const uint64_t* rows, uint64_t count, uint64_t* places);

}  // namespace fpstore
