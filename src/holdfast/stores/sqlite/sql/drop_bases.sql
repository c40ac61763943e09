-- Bases of these versions that no version is left of.
INSERT OR IGNORE INTO holdfast_dropped (dataset, base)
SELECT given.value ->> 0, given.value ->> 2 FROM json_each(:versions) AS given
WHERE NOT EXISTS (
    SELECT 1 FROM holdfast_versions AS v WHERE v.dataset = given.value ->> 0 AND v.base = given.value ->> 2
)
