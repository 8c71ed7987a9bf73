// The delta as a model: random changes, probe-inserts and failures go through it and through a
// plain list of what happened; both must say the same of every version that was committed,
// whichever instruction set compares. A call whose memory runs out, at any of its allocations,
// changes nothing.
#include <algorithm>
#include <map>
#include <memory>
#include <new>
#include <set>

#include "delta/delta.hpp"
#include "rows.hpp"

using namespace fpstore;

namespace {

// While there is one, so many allocations succeed, and then one fails, or all.
class Scarcity {
 public:
  Scarcity(uint64_t allowed, bool lasts) : left_(allowed), lasts_(lasts) { now_ = this; }
  Scarcity(const Scarcity&) = delete;
  Scarcity& operator=(const Scarcity&) = delete;
  ~Scarcity() { now_ = nullptr; }
  bool has_refused() const { return refused_; }
  static bool refuses() { return now_ && now_->refuse(); }

 private:
  bool refuse() {
    if (left_ || (refused_ && !lasts_)) return left_ -= left_ != 0, false;
    return refused_ = true;
  }
  inline static Scarcity* now_ = nullptr;
  uint64_t left_;
  const bool lasts_;
  bool refused_ = false;
};

}  // namespace

void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return Scarcity::refuses() ? nullptr : std::malloc(bytes ? bytes : 1);
}
void* operator new[](size_t bytes, const std::nothrow_t& no) noexcept {
  return operator new(bytes, no);
}
void* operator new(size_t bytes) {
  if (void* const memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void* operator new[](size_t bytes) { return operator new(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace {

using Words = std::vector<uint64_t>;

const Pause kOn = [](uint64_t) {};

template <class W>
struct Modelling {
  using Row = typename W::Row;
  using Rows = std::vector<Row>;
  using FoundIds = IdPairs;  // of the kernel

  struct Happened {
    Change kind;
    Row fingerprint;
    uint64_t id;
  };

  // What the first so many changes make of a fingerprint.
  struct Facts {
    bool present = false;
    bool wiped = false;
    std::pmr::map<uint64_t, bool>
        ids;  // those that were named since the last absence: added or removed
  };

  using State = std::pmr::map<Row, Facts>;

  struct Model {
    std::pmr::vector<Happened> log;
    State now;                                                 // what the whole log makes
    std::pmr::map<Row, bool> in_base;                          // of every fingerprint with an entry
    std::pmr::vector<std::pair<uint32_t, uint32_t>> versions;  // and how many changes they see

    static void happen(State* all, const Happened& one) {
      Facts& facts = (*all)[one.fingerprint];
      facts.present = one.kind == Change::add || one.kind == Change::remove;
      if (facts.present) {
        facts.ids[one.id] = one.kind == Change::add;
      } else {
        facts.wiped = true;
        facts.ids.clear();
      }
    }
    State at(uint32_t end) const {
      if (end == size()) return now;
      State all;
      for (uint32_t i = 0; i < end; ++i) happen(&all, log[i]);
      return all;
    }
    void push(const Happened& one) {
      log.push_back(one);
      happen(&now, one);
    }
    void take_back(size_t to) {
      if (to == log.size()) return;
      log.resize(to);
      now.clear();
      for (const Happened& one : log) happen(&now, one);
    }
    uint32_t end_of(uint32_t version) const {
      uint32_t end = 0;
      for (const auto& v : versions)
        if (v.first <= version) end = v.second;
      return end;
    }
    bool is_old(uint32_t version) const {
      return !versions.empty() && version < versions.back().first;
    }
    void commit(uint32_t version) {
      if (!versions.empty() && versions.back().first == version)
        versions.back().second = size();
      else
        versions.emplace_back(version, size());
    }
    uint32_t size() const { return static_cast<uint32_t>(log.size()); }
  };

  static Presence presence_of(const Facts& facts, uint64_t id) {
    const auto found = facts.ids.find(id);
    if (found != facts.ids.end()) return found->second ? Presence::present : Presence::absent;
    return facts.wiped ? Presence::absent : Presence::unknown;
  }

  using Near = std::pmr::vector<std::pair<Row, unsigned>>;  // fingerprint, distance

  static Near within_radius(const Model& model, const State& all, const Row& query,
                            unsigned radius) {
    Near found;
    for (const auto& [fingerprint, facts] : all) {
      const unsigned distance = ones(fingerprint ^ query);
      if (facts.present && !model.in_base.at(fingerprint) && distance <= radius)
        found.emplace_back(fingerprint, distance);
    }
    return found;
  }

  // The matches of a sink, query by query, each fingerprint once.
  static std::pmr::vector<Near> take(const Sink& sink, size_t queries) {
    std::pmr::vector<Near> found(queries);
    for (uint64_t i = 0; i < sink.count; ++i) {
      const Match<Row>& match = fpstore::matches<Row>(sink)[i];
      REQUIRE(match.query < queries);
      found[match.query].emplace_back(match.fingerprint, match.distance);
    }
    for (Near& matches : found) std::sort(matches.begin(), matches.end());
    return found;
  }

  struct Guard {
    Sink sink;
    ~Guard() { release(&sink); }
  };

  class Trial {
   public:
    Trial(fuzz::Input* input, const fuzz::Chance& chance)
        : input_(*input), chance_(chance), scale_(chance.scale()), random_(input->word(4)) {
      uint8_t bits[W::kBits];
      fuzz::shuffle(&random_, bits, W::kBits);
      // An index of a small radius takes fewer pages.
      const unsigned radius = input_.byte();
      radius_ = radius < 192 && small() ? radius % 3 : radius % (W::kBits < 64 ? 12 : 40);
      delta_ = make_delta(W::kBits, radius_, bits);
      // Fingerprints of which many lie near each other, and few ids, so that changes meet.
      const unsigned most[] = {12, 24, 48};
      const unsigned pool = 1 + input_.byte() % most[static_cast<unsigned>(scale_)];
      while (pool_.size() < pool) {
        Row x = pool_.empty() || random_.below(3) == 0
                    ? fuzz::random_row<W>(&random_)
                    : pool_[random_.below(static_cast<unsigned>(pool_.size()))];
        for (unsigned k = random_.below(5); k; --k) x = flipped(x);
        pool_.push_back(x);
      }
      ids_ = 1 + input_.byte() % 24;
      based_ = input_.word();
      is_scarce_ = based_ >> 58 & 1;
      if (based_ >> 62 == 0) succeed([&, n = random_.below(40)] { return delta_->load(n); });
    }

    void run() {
      const unsigned most = small()                         ? 1 + random_.below(6)
                            : scale_ == fuzz::Scale::medium ? 12
                                                            : 40;
      for (unsigned steps = 0; input_.left() && steps < most; ++steps) {
        const unsigned step = input_.byte();
        const uint32_t version = next_version(step);
        if (step == 101)
          succeed([&] {
            return delta_->index_ids();
          });  // else the first look-up by id comes after all changes
        if (step % 4 == 3) {
          succeed([&] { return delta_->index(kOn); });
          probe_insert(version);
        } else {
          if (delta_->is_loading() && step == 100) succeed([&] { return delta_->load(700); });
          apply(version, step);
        }
      }
      succeed([&] { return delta_->index(kOn); });
      REQUIRE(!delta_->is_loading());
      check_totals();
      // Now, or as one of the versions saw it.
      const bool before = !model_.versions.empty() && random_.below(2);
      check(
          before
              ? model_.versions[random_.below(static_cast<unsigned>(model_.versions.size()))].second
              : model_.size());
    }

   private:
    bool small() const { return scale_ == fuzz::Scale::small; }

    // What work() returns when memory suffices. Before that it often runs out, at the first
    // allocation, the second and so on.
    template <class Work>
    Applied with_memory(const Work& work) {
      const bool lasts = random_.below(2);
      for (uint64_t allowed = 0; is_scarce_; allowed += 1 + allowed / 64) {
        Applied applied = Applied::out_of_memory;
        const Scarcity scarcity(allowed, lasts);
        try {
          applied = work();
        } catch (const std::bad_alloc&) {
        }
        if (!scarcity.has_refused() || applied != Applied::out_of_memory) return applied;
        REQUIRE(delta_->operations() == model_.size() &&
                delta_->end_of(UINT32_MAX) == model_.size());
      }
      try {
        return work();
      } catch (const std::bad_alloc&) {
        return Applied::out_of_memory;
      }
    }
    template <class Work>
    void succeed(const Work& work) {
      REQUIRE(with_memory([&] { return work() ? Applied::ok : Applied::out_of_memory; }) ==
              Applied::ok);
    }

    // The same version as before, a later one, or now and then an older one, which is refused.
    uint32_t next_version(unsigned step) {
      const uint32_t last = model_.versions.empty() ? 5 : model_.versions.back().first;
      return step >= 248 ? last - 1 : last + step / 64;
    }
    Row flipped(const Row& x) { return x ^ fuzz::one_bit<W>(random_.below(W::kBits)); }
    Row pick() { return pool_[input_.byte() % pool_.size()]; }
    uint64_t pick_id() { return input_.byte() % ids_ * (uint64_t{1} << (based_ % 60)); }
    // Fixed for each fingerprint, but for a few that contradict themselves.
    bool in_base(const Row& fingerprint) {
      const bool based =
          (word_of(fingerprint, W::kWords - 1) * 0x9E3779B97F4A7C15u ^ based_) >> 62 == 0;
      return random_.below(2000) == 0 ? !based : based;
    }

    void apply(uint32_t version, unsigned step) {
      // One in many is long enough for the hash tables to grow.
      const bool many = step == 100 && scale_ == fuzz::Scale::large;
      const size_t n = many ? 700 : input_.byte() % (small() ? 10 : 20);
      std::vector<uint8_t> kinds(n), bases(n);
      Rows fingerprints(n);
      Words ids(n);
      for (size_t i = 0; i < n; ++i) {
        const unsigned kind = input_.byte();
        kinds[i] = kind < 140 ? 0 : kind < 200 ? 1 : kind < 250 ? 2 : 3;
        fingerprints[i] = many && kind % 4 ? fuzz::random_row<W>(&random_) : pick();
        ids[i] = pick_id();
        bases[i] = in_base(fingerprints[i]);
      }
      const Changes changes{kinds.data(), fuzz::words(fingerprints), ids.data(), bases.data(), n};
      const Applied applied = with_memory([&] { return delta_->apply(changes, version); });
      if (model_.is_old(version)) {
        REQUIRE(applied == Applied::old_version);
        return;
      }
      const size_t before = model_.log.size();
      for (size_t i = 0; i < n; ++i) {
        if (!put(fingerprints[i], bases[i])) {
          REQUIRE(applied == Applied::base_changed);
          model_.take_back(before);
          return;
        }
        model_.push(Happened{kinds[i] == 3 ? Change::wipe : static_cast<Change>(kinds[i]),
                             fingerprints[i], ids[i]});
      }
      REQUIRE(applied == Applied::ok);
      if (n) model_.commit(version);
    }

    // Entries stay though the changes that made them are taken back.
    bool put(const Row& fingerprint, bool based) {
      return model_.in_base.emplace(fingerprint, based).first->second == based;
    }

    void probe_insert(uint32_t version) {
      const size_t n = input_.byte() % (small() ? 10 : 24);
      const unsigned how = input_.byte();
      const unsigned radius = input_.byte() % 4 ? std::min<unsigned>(random_.below(12), radius_)
                                                : random_.below(W::kBits + 1);
      const bool always = how & 1, fails = how >= 240;
      Rows queries(n);
      Words ids(n);
      std::vector<uint8_t> matched(n), bases(n), inserted(n, 9), expected(n);
      for (size_t i = 0; i < n; ++i) {
        queries[i] = pick();
        if (input_.byte() & 1) queries[i] = flipped(queries[i]);
        ids[i] = pick_id();
        matched[i] = static_cast<uint8_t>(random_.below(8) ? 0 : 1 + random_.below(2));
        bases[i] = in_base(queries[i]);
      }
      Guard guard;
      if ((how & 14) == 14) guard.sink.limit = how;
      size_t done = n;
      const ConditionalInserts asked{fuzz::words(queries), ids.data(), matched.data(),
                                     bases.data(),         radius,     always};
      const Applied applied = with_memory([&] {
        done = n;
        guard.sink.count = 0;
        return delta_->probe_insert(asked, &done, version, &guard.sink, inserted.data(), [fails] {
          if (fails) throw std::bad_alloc();
        });
      });
      if (model_.is_old(version)) {
        REQUIRE(applied == Applied::old_version);
        return;
      }
      const uint32_t before = model_.size();
      std::pmr::vector<Near> found(n);
      uint64_t total = 0;
      for (size_t i = 0; i < n; ++i) {
        found[i] = within_radius(model_, model_.now, queries[i], radius);
        total += found[i].size();
        if (total > guard.sink.limit) return taken_back(applied, Applied::out_of_memory, before);
        const auto known = model_.now.find(queries[i]);
        const bool holds =
            known != model_.now.end() && presence_of(known->second, ids[i]) == Presence::present;
        if (matched[i] == 2 || holds || !(always || (matched[i] == 0 && found[i].empty())))
          continue;
        if (!put(queries[i], bases[i])) return taken_back(applied, Applied::base_changed, before);
        model_.push(Happened{Change::add, queries[i], ids[i]});
        expected[i] = 1;
      }
      if (fails) return taken_back(applied, Applied::out_of_memory, before);
      REQUIRE(applied == Applied::ok && done == n && inserted == expected &&
              take(guard.sink, n) == found);
      if (model_.size() != before) model_.commit(version);
    }

    void taken_back(Applied applied, Applied expected, uint32_t before) {
      REQUIRE(applied == expected);
      model_.take_back(before);
    }

    void check_totals() {
      uint64_t removals = 0;
      for (const auto& [fingerprint, facts] : model_.now)
        removals += facts.wiped && model_.in_base.at(fingerprint);
      REQUIRE(delta_->entries() == model_.in_base.size() && delta_->operations() == model_.size());
      REQUIRE(delta_->removals() == removals);
      REQUIRE(delta_->width() == W::kBits && delta_->bytes() >= model_.size());
      for (uint32_t version = 3; version < 12; ++version)
        REQUIRE(delta_->end_of(version) == model_.end_of(version));
      REQUIRE(delta_->end_of(UINT32_MAX) == model_.size());
    }

    void check(uint32_t end) {
      const State all = model_.at(end);
      Rows asked(pool_);
      const size_t most = small() ? 14 : 60;
      for (const auto& [fingerprint, facts] : all)
        if (asked.size() < most) asked.push_back(fingerprint);
      for (unsigned i = 0; i < 4; ++i)
        asked.push_back(pool_[random_.below(static_cast<unsigned>(pool_.size()))] ^
                        fuzz::one_bit<W>(i * 9));
      asked.push_back(fuzz::random_row<W>(&random_));
      check_said(all, asked, end);
      check_found(all, end);
      check_export(all, end);
      check_near(all, asked, end);
    }

    void check_said(const State& all, const Rows& asked, uint32_t end) {
      static const Facts none;
      std::vector<uint8_t> states(asked.size()), pairs(asked.size());
      Words wanted;
      for (size_t i = 0; i < asked.size(); ++i)
        wanted.push_back(random_.below(ids_) * (uint64_t{1} << (based_ % 60)));
      delta_->states(fuzz::words(asked), asked.size(), end, states.data(), kOn);
      delta_->pair_states(fuzz::words(asked), wanted.data(), asked.size(), end, pairs.data(), kOn);
      for (size_t i = 0; i < asked.size(); ++i) {
        const auto known = all.find(asked[i]);
        const Facts& facts = known == all.end() ? none : known->second;
        REQUIRE(static_cast<Presence>(states[i]) == (known == all.end() ? Presence::unknown
                                                     : facts.present    ? Presence::present
                                                                        : Presence::absent));
        REQUIRE(static_cast<Presence>(pairs[i]) == presence_of(facts, wanted[i]));
        std::pmr::set<uint64_t> base;
        for (unsigned k = random_.below(6); k; --k)
          base.insert(random_.below(ids_ + 2) * (uint64_t{1} << (based_ % 60)));
        std::pmr::set<uint64_t> expected = facts.wiped ? std::pmr::set<uint64_t>() : base;
        for (const auto& [id, added] : facts.ids)
          if (added)
            expected.insert(id);
          else
            expected.erase(id);
        const Words given(base.begin(), base.end());
        Words got{77};
        delta_->ids(fuzz::words(asked) + i * W::kWords, given.data(), given.size(), end, &got);
        REQUIRE(got.front() == 77 && got.size() == expected.size() + 1 &&
                std::equal(expected.begin(), expected.end(), got.begin() + 1));
      }
    }

    void check_found(const State& all, uint32_t end) {
      std::pmr::set<uint64_t> wanted;
      for (unsigned k = random_.below(12); k; --k)
        wanted.insert(random_.below(ids_ + 1) * (uint64_t{1} << (based_ % 60)));
      std::set<std::pair<Row, uint64_t>> expected;
      for (const auto& [fingerprint, facts] : all)
        for (const auto& [id, added] : facts.ids)
          if (added && wanted.count(id)) expected.emplace(fingerprint, id);
      const Words ids(wanted.begin(), wanted.end());
      REQUIRE(delta_->index_ids() && delta_->has_id_index());
      const FoundIds got = delta_->find(ids.data(), ids.size(), end, kOn);
      REQUIRE(got.ids.size() == expected.size() &&
              got.fingerprints.size() == W::kWords * expected.size());
      size_t i = 0;
      for (const auto& [fingerprint, id] : expected) {
        REQUIRE(*rows<Row>(got.fingerprints.data() + W::kWords * i) == fingerprint &&
                got.ids[i] == id);
        ++i;
      }
    }

    void check_export(const State& all, uint32_t end) {
      Export got, expected;
      delta_->export_state(end, &got, kOn);
      expected.lims.push_back(0);
      for (const auto& [fingerprint, facts] : all) {
        const bool based = model_.in_base.at(fingerprint);
        for (unsigned i = 0; i < W::kWords; ++i)
          expected.fingerprints.push_back(word_of(fingerprint, i));
        expected.in_base.push_back(based);
        for (const auto& [id, added] : facts.ids)
          if (added && !based) expected.ids.push_back(id);
        expected.lims.push_back(static_cast<int64_t>(expected.ids.size()));
      }
      REQUIRE(got.fingerprints == expected.fingerprints && got.in_base == expected.in_base);
      REQUIRE(got.lims == expected.lims && got.ids == expected.ids);
    }

    void check_near(const State& all, const Rows& asked, uint32_t end) {
      const unsigned radius = random_.below(radius_ + 1), wide = random_.below(W::kBits + 1);
      std::pmr::vector<Near> probed, scanned;
      for (const Row& query : asked) probed.push_back(within_radius(model_, all, query, radius));
      const size_t few = std::min<size_t>(asked.size(), 5);
      for (size_t i = 0; i < few; ++i)
        scanned.push_back(within_radius(model_, all, asked[i], wide));
      static const std::vector<const Kernels*> sets = fuzz::all_kernels(W::kBits);
      for (const Kernels* set : chance_.sets(sets)) {
        REQUIRE(select_kernels(set->name));
        Guard probe;
        REQUIRE(delta_->probe(fuzz::words(asked), asked.size(), radius, end, &probe.sink, kOn));
        REQUIRE(take(probe.sink, asked.size()) == probed);
      }
      check_nearest(fuzz::words(asked), probed, radius, end);
      check_shared(all, asked, end);
      // A scan walks over every bucket, mostly empty ones: now and then.
      if (random_.below(small() ? 64 : 4)) return;
      REQUIRE(select_kernels(sets[random_.below(static_cast<unsigned>(sets.size()))]->name));
      Guard scan;
      REQUIRE(delta_->scan(fuzz::words(asked), few, wide, end, &scan.sink, kOn));
      REQUIRE(take(scan.sink, few) == scanned);
      check_nearest(fuzz::words(asked), scanned, wide, end);
    }

    // What has the leading bits of each query, at any distance.
    void check_shared(const State& all, const Rows& asked, uint32_t end) {
      const unsigned bits = random_.below(std::min(W::kBits, 64u) + 1);
      std::pmr::vector<Near> shared(asked.size());
      for (size_t i = 0; i < asked.size(); ++i) {
        for (const auto& near : within_radius(model_, all, asked[i], W::kBits))
          if (!((leading_word(near.first) ^ leading_word(asked[i])) & top_mask(bits)))
            shared[i].push_back(near);
      }
      Guard share;
      REQUIRE(delta_->share(fuzz::words(asked), asked.size(), bits, end, &share.sink, kOn));
      REQUIRE(take(share.sink, asked.size()) == shared);
    }

    // The nearest of each query are the first of all its matches by distance and fingerprint.
    void check_nearest(const uint64_t* queries, std::pmr::vector<Near> expected, unsigned radius,
                       uint32_t end) {
      struct Kept {
        Nearest nearest;
        ~Kept() { release(&nearest); }
      } kept;
      Guard out;
      const uint64_t limit = 1 + random_.below(9);
      REQUIRE(start_nearest(&kept.nearest, W::kWords, expected.size(), limit, radius));
      REQUIRE(delta_->nearest(queries, expected.size(), radius, end, &kept.nearest, kOn));
      for (size_t i = 0; i < expected.size(); ++i)
        REQUIRE(kept.nearest.queries[i].more == (expected[i].size() > limit));
      REQUIRE(hand_over(&kept.nearest, &out.sink));
      for (Near& matches : expected) {
        std::sort(matches.begin(), matches.end(), [](const auto& a, const auto& b) {
          return a.second != b.second ? a.second < b.second : a.first < b.first;
        });
        if (matches.size() > limit) matches.resize(limit);
        std::sort(matches.begin(), matches.end());
      }
      REQUIRE(take(out.sink, expected.size()) == expected);
    }

    fuzz::Input& input_;
    const fuzz::Chance chance_;
    const fuzz::Scale scale_;
    fuzz::Random random_;
    unsigned radius_;
    std::unique_ptr<Delta> delta_;
    Model model_;
    Rows pool_;
    unsigned ids_;
    uint64_t based_;
    bool is_scarce_;
  };
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::Arena arena;
  fuzz::Input input(data, size);
  fuzz::with_width(input.byte(), [&](auto width) {
    typename Modelling<decltype(width)>::Trial(&input, fuzz::Chance(data, size)).run();
  });
  return 0;
}
