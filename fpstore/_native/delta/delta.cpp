// What a delta says of its fingerprints at a version, and probes that insert.
#include "delta/changes.hpp"

namespace fpstore {
namespace {

template <class Row>
const uint64_t* words_at(const Row* row) {
  return reinterpret_cast<const uint64_t*>(row);
}

template <class Row>
void append(const Row& row, std::vector<uint64_t>* words) {
  words->insert(words->end(), words_at(&row), words_at(&row) + sizeof(Row) / sizeof(uint64_t));
}

template <class Row>
class DeltaOf final : public DeltaChanges<Row> {
  using Base = DeltaChanges<Row>;
  using Base::change, Base::find_entry, Base::find_pair, Base::is_present, Base::mix, Base::newest,
      Base::newest_absence, Base::pair_state, Base::prefetch, Base::prefetch_entry,
      Base::presence_of, Base::state;
  using Base::entries_, Base::entry_slots_, Base::id_slots_, Base::index_, Base::next_of_id_,
      Base::pairs_, Base::versions_, Base::width_;
  using Base::kGroup, Base::kInsertWork, Base::kLookUpWork;
  using typename Base::Attempt, typename Base::Entry, typename Base::Event, typename Base::Places,
      typename Base::Version;

 public:
  using Base::Base;

  Applied probe_insert(const ConditionalInserts& rows, size_t* n, uint32_t version, Sink* sink,
                       uint8_t* inserted, const std::function<void()>& deliver) override {
    if (versions_.size() && version < versions_[versions_.size() - 1].version)
      return Applied::old_version;
    if (!versions_.reserve(versions_.size() + 1)) return Applied::out_of_memory;
    const Kernels& k = kernels(width_);
    const size_t all = *n;
    uint64_t work = 0;
    *n = 0;
    Attempt attempt(this);
    Places places[kGroup];
    uint64_t hashes[kGroup];
    for (size_t i = 0; i < all && work < kInsertWork; i += kGroup) {
      const size_t m = std::min<size_t>(kGroup, all - i);
      prefetch(fpstore::rows<Row>(rows.queries) + i, rows.ids + i, rows.in_base + i, m, places,
               hashes);
      for (size_t j = 0; j < m; ++j) index_.prefetch_keys(places[j], rows.radius);
      for (size_t j = 0; j < m && work < kInsertWork; ++j, ++*n) {
        work += index_.size_of(places[j], rows.radius);
        const Applied applied = probe_insert_one(k, rows, i + j, places[j], sink, inserted + i + j);
        if (applied != Applied::ok) {
          *n = 0;
          return applied;
        }
      }
    }
    deliver();
    attempt.commit(version);
    return Applied::ok;
  }

  uint32_t end_of(uint32_t version) const override {
    const Version* first = versions_.data();
    const Version* last = first + versions_.size();
    if (first == last || version < first->version) return 0;
    if (version >= last[-1].version) return last[-1].end;
    return std::upper_bound(first, last, version,
                            [](uint32_t v, const Version& x) { return v < x.version; })[-1]
        .end;
  }
  bool probe(const uint64_t* queries, size_t n, unsigned radius, uint32_t end, Sink* sink,
             const Pause& pause) const override {
    return probe_each(rows<Row>(queries), n, radius, end, sink, pause, [] { return true; });
  }
  bool share(const uint64_t* queries, size_t n, unsigned bits, uint32_t end, Sink* sink,
             const Pause& pause) const override {
    const uint64_t mask = top_mask(bits);
    // Of no radius, the bucket of the first block is fetched.
    return look_each(
        rows<Row>(queries), n, 0, end, sink, pause, [] { return true; },
        [&](const Row& query, const Places& at, const auto& emit) {
          return index_.share(query, mask, at, emit);
        },
        [&](const Places& at) { return index_.share_size(mask, at); });
  }
  bool scan(const uint64_t* queries, size_t n, unsigned radius, uint32_t end, Sink* sink,
            const Pause& pause) const override {
    return scan_parts(n, pause, [&](size_t first, size_t count) {
      return scan_some(
          rows<Row>(queries), first, count, end, [&](size_t) { return radius; },
          [&](const Match<Row>& match) {
            return push(sink, match.fingerprint, match.query, match.distance);
          });
    });
  }
  bool nearest(const uint64_t* queries, size_t n, unsigned radius, uint32_t end, Nearest* kept,
               const Pause& pause) const override {
    if (radius <= index_.radius()) {
      Sink some{};  // the matches of one query
      const std::unique_ptr<Sink, void (*)(Sink*)> held(&some, release);
      return probe_each(rows<Row>(queries), n, radius, end, &some, pause, [&] {
        for (uint64_t i = 0; i < some.count; ++i)
          if (!keep_nearest(kept, matches<Row>(some)[i])) return false;
        some.count = 0;
        return true;
      });
    }
    return scan_parts(n, pause, [&](size_t first, size_t count) {
      return scan_some(
          rows<Row>(queries), first, count, end, [&](size_t i) { return kept->queries[i].bound; },
          [&](const Match<Row>& match) { return keep_nearest(kept, match); });
    });
  }

  void states(const uint64_t* words, size_t n, uint32_t end, uint8_t* out,
              const Pause& pause) const override {
    const Row* const fingerprints = rows<Row>(words);
    for (size_t i = 0; i < n; i += kGroup) {
      pause(kGroup * kLookUpWork);
      const size_t m = std::min<size_t>(kGroup, n - i);
      for (size_t j = 0; j < m; ++j) entry_slots_.prefetch(mix(fingerprints[i + j]));
      for (size_t j = 0; j < m; ++j) prefetch_entry(mix(fingerprints[i + j]));
      for (size_t j = 0; j < m; ++j)
        out[i + j] = static_cast<uint8_t>(state(fingerprints[i + j], end));
    }
  }

  void pair_states(const uint64_t* words, const uint64_t* ids, size_t n, uint32_t end, uint8_t* out,
                   const Pause& pause) const override {
    const Row* const fingerprints = rows<Row>(words);
    for (size_t i = 0; i < n; ++i) {
      pause(kLookUpWork);
      if (i + kGroup < n) entry_slots_.prefetch(mix(fingerprints[i + kGroup]));
      out[i] = static_cast<uint8_t>(pair_state(fingerprints[i], ids[i], end));
    }
  }

  void ids(const uint64_t* words, const uint64_t* base, size_t n, uint32_t end,
           std::vector<uint64_t>* out) const override {
    const Row fingerprint = *rows<Row>(words);
    const uint32_t entry = find_entry(mix(fingerprint), fingerprint);
    if (entry == kNone) {
      out->insert(out->end(), base, base + n);
      return;
    }
    const Event* absence = newest_absence(entries_[entry], end);
    if (absence) n = 0;
    std::vector<uint64_t> added, removed;
    for (uint32_t p = entries_[entry].pairs; p != kNone; p = pairs_[p].next_of_entry) {
      const Presence presence = presence_of(&pairs_[p], absence, end);
      if (presence == Presence::present)
        added.push_back(pairs_[p].id);
      else if (presence == Presence::absent && n)
        removed.push_back(pairs_[p].id);
    }
    std::sort(added.begin(), added.end());
    std::sort(removed.begin(), removed.end());
    size_t a = 0, r = 0;
    for (size_t i = 0; i < n; ++i) {
      while (a < added.size() && added[a] < base[i]) out->push_back(added[a++]);
      a += a < added.size() && added[a] == base[i];
      while (r < removed.size() && removed[r] < base[i]) ++r;
      if (r == removed.size() || removed[r] != base[i]) out->push_back(base[i]);
    }
    out->insert(out->end(), added.begin() + static_cast<std::ptrdiff_t>(a), added.end());
  }

  IdPairs find(const uint64_t* ids, size_t n, uint32_t end, const Pause& pause) const override {
    std::vector<std::pair<Row, uint64_t>> found;
    for (size_t i = 0; i < n; ++i) {
      pause(kLookUpWork);
      if (i + kGroup < n) id_slots_.prefetch(mix(ids[i + kGroup]));
      uint32_t p = id_slots_.find(mix(ids[i]), [&](uint32_t q) { return pairs_[q].id == ids[i]; });
      for (; p != kNone; p = next_of_id_[p]) {
        const Entry& entry = entries_[pairs_[p].entry];
        if (presence_of(&pairs_[p], newest_absence(entry, end), end) == Presence::present)
          found.emplace_back(entry.fingerprint, ids[i]);
      }
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      return a.first < b.first || (a.first == b.first && a.second < b.second);
    });
    found.erase(std::unique(found.begin(), found.end(),
                            [](const auto& a, const auto& b) {
                              return a.first == b.first && a.second == b.second;
                            }),
                found.end());
    IdPairs out;
    for (const auto& pair : found) {
      append(pair.first, &out.fingerprints);
      out.ids.push_back(pair.second);
    }
    return out;
  }

  void export_state(uint32_t end, Export* out, const Pause& pause) const override {
    constexpr size_t words = sizeof(Row) / sizeof(uint64_t), each = words + 1;
    std::vector<uint64_t> order;  // fingerprints, each with the number of its entry
    order.reserve(entries_.size() * each);
    for (uint32_t e = 0; e < entries_.size(); ++e) {
      if (!newest(entries_[e].presence, end)) continue;
      append(entries_[e].fingerprint, &order);
      order.push_back(e);
    }
    const size_t n = order.size() / each;
    {
      std::vector<uint64_t> scratch(order.size());
      Stopper never;
      kernels(width_).sort_pairs(order.data(), scratch.data(), n, &never);
    }
    const auto entry_at = [&](size_t i) -> const Entry& {
      return entries_[static_cast<uint32_t>(order[i * each + words])];
    };
    out->fingerprints.reserve(n * words);
    out->in_base.reserve(n);
    out->lims.reserve(n + 1);
    out->lims.push_back(0);
    for (size_t i = 0; i < n; ++i) {
      pause(kLookUpWork);
      if (i + 2 * kGroup < n) fetch_line(&entry_at(i + 2 * kGroup));
      if (i + kGroup < n && entry_at(i + kGroup).pairs != kNone)
        fetch_line(&pairs_[entry_at(i + kGroup).pairs]);
      const Entry& entry = entry_at(i);
      if (!entry.in_base) {
        const Event* absence = newest_absence(entry, end);
        for (uint32_t p = entry.pairs; p != kNone; p = pairs_[p].next_of_entry)
          if (presence_of(&pairs_[p], absence, end) == Presence::present)
            out->ids.push_back(pairs_[p].id);
        std::sort(out->ids.begin() + out->lims.back(), out->ids.end());
      }
      append(entry.fingerprint, &out->fingerprints);
      out->in_base.push_back(entry.in_base);
      out->lims.push_back(static_cast<int64_t>(out->ids.size()));
    }
  }

 private:
  template <class Done>
  bool probe_each(const Row* queries, size_t n, unsigned radius, uint32_t end, Sink* sink,
                  const Pause& pause, const Done& done) const {
    const Kernels& k = kernels(width_);
    return look_each(
        queries, n, radius, end, sink, pause, done,
        [&](const Row& query, const Places& at, const auto& emit) {
          return index_.probe(k, query, radius, at, emit);
        },
        [&](const Places& at) { return index_.size_of(at, radius); });
  }

  // Adds what look(query, places, emit) finds for one query after the other to the sink, and calls
  // done() after each, which may refuse. The buckets that a probe of the radius looks at are
  // fetched before, and work(places) is about how many keys are compared.
  template <class Done, class Look, class Work>
  bool look_each(const Row* queries, size_t n, unsigned radius, uint32_t end, Sink* sink,
                 const Pause& pause, const Done& done, const Look& look, const Work& work) const {
    Places places[kGroup];
    for (size_t i = 0; i < n; i += kGroup) {
      const size_t m = std::min<size_t>(kGroup, n - i);
      for (size_t j = 0; j < m; ++j) {
        places[j] = index_.places(queries[i + j]);
        index_.prefetch_buckets(places[j], radius);
      }
      // A single query's buckets are few enough to be waited for together.
      for (size_t j = 0; m > 1 && j < m; ++j) index_.prefetch_keys(places[j], radius);
      for (size_t j = 0; j < m; ++j) {
        const uint64_t before = sink->count;
        if (!look(queries[i + j], places[j], [&](const Row& fingerprint, unsigned distance) {
              entry_slots_.prefetch(mix(fingerprint));
              return push(sink, fingerprint, static_cast<uint32_t>(i + j), distance);
            }))
          return false;
        keep_present(before, end, sink);
        const uint64_t found = sink->count - before;
        if (!done()) return false;
        pause(kBlockWork + work(places[j]) + found * kLookUpWork);
      }
    }
    return true;
  }

  // Leaves out the matches from a place on that are absent.
  void keep_present(uint64_t from, uint32_t end, Sink* sink) const {
    Match<Row>* const found = matches<Row>(*sink);
    for (uint64_t i = from; i < sink->count; ++i) prefetch_entry(mix(found[i].fingerprint));
    uint64_t kept = from;
    for (uint64_t i = from; i < sink->count; ++i)
      if (is_present(found[i].fingerprint, end)) found[kept++] = found[i];
    sink->count = kept;
  }

  // Calls visit(first, count) for parts of n queries, each small enough that a pause comes before
  // long.
  template <class Visit>
  bool scan_parts(size_t n, const Pause& pause, const Visit& visit) const {
    const size_t most = std::max<size_t>(kGroup, kInsertWork / (index_.size() + 1));
    for (size_t i = 0; i < n; i += most) {
      const size_t m = std::min(most, n - i);
      if (!visit(i, m)) return false;
      pause(m * index_.size());
    }
    return true;
  }

  template <class Bound, class Emit>
  bool scan_some(const Row* queries, size_t first, size_t n, uint32_t end, const Bound& bound,
                 const Emit& emit) const {
    const Kernels& k = kernels(width_);
    std::vector<uint32_t> hits(NearIndex<Row>::kScan);
    std::vector<uint8_t> known(NearIndex<Row>::kScan);  // 1: looked up and present, 2: and absent
    return index_.scan([&](const Row* keys, size_t count) {
      std::fill(known.begin(), known.end(), 0);
      for (size_t i = first; i < first + n; ++i) {
        const size_t found =
            k.within_radius(words_at(keys), count, words_at(queries + i), bound(i), hits.data());
        for (size_t j = 0; j < found; ++j) {
          const Row key = keys[hits[j]];
          uint8_t& state = known[hits[j]];
          if (!state) state = is_present(key, end) ? 1 : 2;
          const unsigned distance = ones(key ^ queries[i]);
          if (state == 1 && !emit(Match<Row>{key, static_cast<uint32_t>(i), distance}))
            return false;
        }
      }
      return true;
    });
  }

  // Does what probe_insert, below, does, for one of its rows.
  Applied probe_insert_one(const Kernels& k, const ConditionalInserts& rows, size_t q,
                           const Places& at, Sink* sink, uint8_t* inserted) {
    const Row query = fpstore::rows<Row>(rows.queries)[q];
    const uint64_t before = sink->count;
    *inserted = 0;
    if (!index_.probe(k, query, rows.radius, at, [&](const Row& fingerprint, unsigned distance) {
          return !is_present(fingerprint, kNone) ||
                 push(sink, fingerprint, static_cast<uint32_t>(q), distance);
        }))
      return Applied::out_of_memory;
    const bool wanted =
        rows.matched[q] != 2 && (rows.always || (rows.matched[q] == 0 && sink->count == before));
    if (!wanted || pair_state(query, rows.ids[q], kNone) == Presence::present) return Applied::ok;
    *inserted = 1;
    return change(Change::add, mix(query), query, rows.ids[q], rows.in_base[q] != 0, at);
  }
};

}  // namespace

std::unique_ptr<Delta> make_delta(unsigned width, unsigned radius, const uint8_t* bits) {
  return with_row(words_of(width), [&](auto row) -> std::unique_ptr<Delta> {
    return std::make_unique<DeltaOf<decltype(row)>>(width, radius, bits);
  });
}

}  // namespace fpstore
